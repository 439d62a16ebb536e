"""Rollouts that were each shown a part of a library."""

import json
import sqlite3
from dataclasses import dataclass

from grpo_practice.store.records import Branch
from grpo_practice.store.step_totals import ROLLOUTS


@dataclass(frozen=True, slots=True)
class PartRollout:
    """A scored rollout, and what it was not shown."""

    sample: int
    left_out: frozenset[str]
    """Labels of the experiences that were not shown."""
    reward: float


def scored_parts(db: sqlite3.Connection, branch: Branch) -> list[PartRollout]:
    """Return the scored rollouts of a run that measures experiences, over its line."""
    found = list[PartRollout]()
    for segment in branch.line:
        rows = db.execute(
            f"""SELECT r.sample_id, r.left_out, v.reward {ROLLOUTS}
                 WHERE s.branch_id = ? AND s.step >= ? AND s.step < ? AND v.reward IS NOT NULL
                ORDER BY r.step, r.slot, r.attempt""",
            (segment.branch_id, segment.first, segment.end),
        )
        found += [
            PartRollout(sample, frozenset(json.loads(left_out or "[]")), reward)
            for sample, left_out, reward in rows
        ]
    return found
