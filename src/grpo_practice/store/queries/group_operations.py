"""Reads the operations that a group proposed, and what a step made of them."""

import sqlite3
from dataclasses import dataclass

from grpo_practice.store.records import Branch


@dataclass(frozen=True, slots=True)
class OperationLine:
    """An operation on the library, in a list."""

    op: str
    target: str | None
    """Experience that it is about: `E12`."""
    text: str | None
    status: str
    """`proposed`, `applied`, `refused`, `quarantined` or `rejected`."""
    reason: str | None
    finding: str | None
    """Finding of the comparison about the experience."""
    became: str | None
    """Experience that it made or changed."""


def operations_at(
    db: sqlite3.Connection, branch: Branch, step: int, slot: int | None
) -> list[OperationLine]:
    """Return the operations of a group, or with None those of the step's merge, in order."""
    rows = db.execute(
        """SELECT o.op, 'E' || t.label AS target, o.text, o.status, o.reason, o.finding,
                  'E' || r.label AS became
             FROM operations o
             LEFT JOIN experiences t ON t.experience_id = o.target_id
             LEFT JOIN experiences r ON r.experience_id = o.result_id
            WHERE o.branch_id = ? AND o.step = ? AND o.slot = ?
            ORDER BY o.ordinal, o.op_id""",
        (branch.holder(step), step, -1 if slot is None else slot),
    )
    return [OperationLine(**row) for row in rows]
