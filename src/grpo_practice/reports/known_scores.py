"""Scores of existing evaluations."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from grpo_practice.core import stats
from grpo_practice.core.stats import Score
from grpo_practice.core.text import is_data_file
from grpo_practice.core.types import Library
from grpo_practice.store import Store, branches, datasets
from grpo_practice.store.identity import instructions_of, prompt_sha
from grpo_practice.store.queries import evaluations, runs, scores
from grpo_practice.store.queries.evaluations import Evaluation
from grpo_practice.store.records import Branch


@dataclass(frozen=True, slots=True)
class KnownScore:
    """The score of an existing evaluation."""

    run: str
    dataset: str
    score: Score


def known_score(store: Store, run: str) -> KnownScore | None:
    """Return the score of an evaluation run; None if the run does not exist or is incomplete."""
    found = store.read(runs.find, run)
    # More rollouts may have been planned since it was complete; its old score is then no score.
    if found is None or found.head_branch is None or found.steps_closed < found.steps:
        return None
    if not found.has_score:
        return None
    branch = store.read(branches.load, found.head_branch)
    questions = store.read(scores.questions, branch)
    k = max((q.planned for q in questions), default=1)
    dataset = store.read(datasets.by_id, branch.dataset_id).name
    return KnownScore(run, dataset, stats.score(questions, k))


def measured(
    store: Store, branch: Branch, library: Library, dataset: str | None = None
) -> KnownScore | None:
    """Return the experiment's score of a branch's agent with a library.

    With `dataset`, return the score on that dataset that was measured to select a library;
    otherwise return the score on the test set. Return None if no such evaluation is complete.
    """
    purpose: Literal["test", "select"] = "test" if dataset is None else "select"
    for found in evaluations_of(store, branch, library, purpose):
        if is_dataset(found, dataset or branch.tests.dataset) and (
            known := known_score(store, found.run)
        ):
            return known
    return None


def evaluations_of(
    store: Store, branch: Branch, library: Library, purpose: Literal["test", "select"] = "test"
) -> list[Evaluation]:
    """Return the experiment's evaluations of a branch's agent with a library, its own first."""
    exp_id = store.read(runs.get, branch.run).exp_id
    prompt = prompt_sha(instructions_of(branch.identity), library)
    of = partial(evaluations.of_agent, exp_id=exp_id, purpose=purpose)
    return [found for found in store.read(of, branch, prompt) if found.exp_id == exp_id]


def is_dataset(found: Evaluation, dataset: str | None) -> bool:
    """Return whether an evaluation used the dataset of this name or file; True for None."""
    if dataset is None:
        return True
    if is_data_file(dataset):
        # Compare only names, because the same file may be given by different paths.
        return Path(found.origin).name == Path(dataset).name
    return found.dataset == dataset
