"""Rollouts whose prompts each contained a part of a library."""

import json
import sqlite3
from dataclasses import dataclass

from grpo_practice.store.records import Branch
from grpo_practice.store.step_totals import ROLLOUTS


@dataclass(frozen=True, slots=True)
class PartRollout:
    """A rollout, and the experiences left out of its prompt."""

    sample: int
    left_out: frozenset[str]
    """IDs of the experiences that were not in the prompt."""
    reward: float | None
    """Reward; None if the rollout failed."""


def part_rollouts(db: sqlite3.Connection, branch: Branch) -> list[PartRollout]:
    """Return the rollouts on the branch's line in a run that measures experiences."""
    found = list[PartRollout]()
    for segment in branch.line:
        rows = db.execute(
            f"""SELECT r.sample_id, r.left_out, v.reward {ROLLOUTS}
                 WHERE s.branch_id = ? AND s.step >= ? AND s.step < ?
                ORDER BY r.step, r.slot, r.attempt""",
            (segment.branch_id, segment.first, segment.end),
        )
        found += [
            PartRollout(sample, frozenset(json.loads(left_out or "[]")), reward)
            for sample, left_out, reward in rows
        ]
    return found
