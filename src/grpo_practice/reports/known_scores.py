"""Scores of evaluations that exist already, and which of them are of the very same agent."""

from dataclasses import dataclass
from typing import Any

from grpo_practice import stats
from grpo_practice.reports.documents import score_document
from grpo_practice.stats import Score
from grpo_practice.store import Store, branches, datasets
from grpo_practice.store.bound_keys import scoring_of
from grpo_practice.store.queries import references, runs, scores


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
    if not found.has_score:
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
    if scored_as(store, evaluation.head_branch) != scored_as(store, branch_id):
        return None
    return known_score(store, run)


def scored_as(store: Store, branch_id: int) -> dict[str, object]:
    """Return the part of a branch's identity that says who is scored, and how."""
    return scoring_of(store.read(references.record, branch_id).identity)
