"""Scores of evaluations that exist already, and which of them are of the very same agent."""

from dataclasses import dataclass
from typing import Any

from grpo_practice import stats
from grpo_practice.canonical import text_sha
from grpo_practice.config.reading.yaml_reader import parse_yaml
from grpo_practice.prompts.system import system_prompt
from grpo_practice.reports.documents import score_document
from grpo_practice.stats import Score
from grpo_practice.store import Store, branches, datasets
from grpo_practice.store.bound_keys import INSTRUCTIONS, scoring_of
from grpo_practice.store.queries import references, runs, scores
from grpo_practice.store.run_names import eval_name, library_variant
from grpo_practice.types import Library


@dataclass(frozen=True, slots=True)
class KnownScore:
    """The score of an evaluation that exists, for before and after."""

    run: str
    dataset: str
    score: Score

    def document(self) -> dict[str, Any]:
        """Return it as part of a document."""
        return {"run": self.run, "dataset": self.dataset, "score": score_document(self.score)}


def known_score(store: Store, run: str) -> KnownScore | None:
    """Return the score of an evaluation run; None unless it exists and is complete."""
    found = store.read(runs.find, run)
    if found is None or found.head_branch is None or found.steps_closed < found.steps:
        return None
    branch = store.read(branches.load, found.head_branch)
    questions = store.read(scores.questions, branch)
    k = max((q.planned for q in questions), default=1)
    dataset = store.read(datasets.by_id, branch.dataset_id).name
    return KnownScore(run, dataset, stats.score(questions, k))


def measured(store: Store, branch_id: int, run: str) -> KnownScore | None:
    """Return the score of an evaluation that is complete and asked the very agent of this branch.

    An evaluation under the same name may be older than a restart with other instructions, or may
    have been started by hand with another model: its score then says nothing of this agent.
    """
    evaluation = store.read(runs.find, run)
    if evaluation is None or evaluation.head_branch is None:
        return None
    if _scored(store, evaluation.head_branch) != _scored(store, branch_id):
        return None
    return known_score(store, run)


def measured_without(store: Store, branch_id: int, exp_id: str) -> KnownScore | None:
    """Return the score of this branch's agent without a library, wherever it was measured."""
    own = measured(store, branch_id, eval_name(exp_id))
    return own or _measured_elsewhere(store, branch_id, Library(), None)


def measured_with(store: Store, branch_id: int, exp_id: str, library: Library) -> KnownScore | None:
    """Return the score of this branch's agent with a library, measured on the way or exported."""
    on_the_way = measured(store, branch_id, eval_name(exp_id, library_variant(library)))
    return on_the_way or _measured_elsewhere(store, branch_id, library, exp_id)


def _measured_elsewhere(
    store: Store, branch_id: int, library: Library, exp_id: str | None
) -> KnownScore | None:
    """Return the newest score of this agent on all of the run's test set, by any name.

    An exported agent has its library in its instructions: it is found by the prompt it was asked
    with, and counts when nothing else about it, and about its verify function, differs. Without
    one, the evaluations of the experiment `exp_id` count whatever they asked.
    """
    own, judge = _scored(store, branch_id), store.read(branches.load, branch_id).judge_id
    told = text_sha(system_prompt(str(own.pop(INSTRUCTIONS, "")), library))
    tested, partly = _test_set(store, branch_id), None
    for run, of_exp_id, evaluated in store.read(scores.evaluations_with_prompt, told):
        other = _scored(store, evaluated)
        other.pop(INSTRUCTIONS, None)
        known = known_score(store, run) if other == own else None
        if known is None:
            continue
        branch = store.read(branches.load, evaluated)
        dataset = store.read(datasets.by_id, branch.dataset_id)
        asked = len(store.read(scores.questions, branch))
        if (dataset.sha, asked, branch.judge_id) == (tested, dataset.n, judge):
            return known
        if of_exp_id == exp_id and partly is None:
            partly = known
    return partly


def tested_on(store: Store, branch_id: int) -> str | None:
    """Return the name of the dataset that the branch's configuration evaluates on, or its file."""
    config = parse_yaml(store.read(references.record, branch_id).config_text, "the stored config")
    return config.at("evaluation").at("data").data.get("dataset")


def _test_set(store: Store, branch_id: int) -> str | None:
    """Return the hash of the dataset that the branch's configuration evaluates on, as it is now."""
    name = tested_on(store, branch_id)
    known = store.read(datasets.newest) if name else []
    return next((row.sha for row in known if row.name == name), None)


def _scored(store: Store, branch_id: int) -> dict[str, object]:
    """Return the part of a branch's identity that says who is scored, and how."""
    return scoring_of(store.read(references.record, branch_id).identity)
