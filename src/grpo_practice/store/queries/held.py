"""Reads the merged operations on a branch's line that still need a person's approval."""

import json
import sqlite3
from dataclasses import dataclass

from grpo_practice.core.types import Operation, OpKind
from grpo_practice.store import branches
from grpo_practice.store.queries.history import ON_LINE, line_json

# INDEXED BY: because of the grouping, SQLite would otherwise read the operations of every run.
_HELD = f"""SELECT o.op_id, o.step, o.op, 'E' || e.label AS target, o.text, o.domains, o.from_ops,
    count(d.op_id) AS decisions, sum(d.status = 'rejected') AS rejections
  FROM operations o INDEXED BY operations_held
  LEFT JOIN experiences e ON e.experience_id = o.target_id
  LEFT JOIN operations d ON d.decides = o.op_id AND {ON_LINE.format(row="d")}
 WHERE o.rule = 'held' AND o.step <= :until AND {ON_LINE.format(row="o")}
 GROUP BY o.op_id HAVING NOT coalesce(sum(d.status = 'applied'), 0) ORDER BY o.step, o.op_id"""
_QUESTIONS = """SELECT DISTINCT s.question FROM operations o
  JOIN groups g USING (branch_id, step, slot) JOIN samples s USING (sample_id)
  WHERE o.op_id IN (SELECT value FROM json_each(?))"""


@dataclass(frozen=True, slots=True)
class Held:
    """A new text of the library that waits for a person's approval."""

    id: str
    """ID for `experiences approve` and `reject`: `H12`."""
    step: int
    op: OpKind
    """`ADD`, or `UPDATE` of an experience."""
    target: str | None
    """ID of the experience that the operation rewrites."""
    text: str
    domains: tuple[str, ...]
    """Web sites that the groups behind the operation had read."""
    questions: tuple[str, ...]
    """Questions of the groups that proposed the operation."""
    approved: bool
    """True if a person approved the operation and it waits for the open step to close."""

    @property
    def row(self) -> int:
        """Row of the operation."""
        return int(self.id[1:])

    @property
    def operation(self) -> Operation:
        """Operation as it would be applied."""
        return Operation(self.op, self.target, self.text, domains=self.domains)


def held(db: sqlite3.Connection, branch: int, *, until: int) -> list[Held]:
    """Return the operations held by steps up to `until` that were not rejected, oldest first."""
    return [
        Held(
            f"H{row['op_id']}",
            row["step"],
            row["op"],
            row["target"],
            row["text"],
            tuple(json.loads(row["domains"])),
            tuple(q for (q,) in db.execute(_QUESTIONS, (row["from_ops"],))),
            row["decisions"] > 0,
        )
        for row in _rows(db, branch, until)
        if not row["rejections"]
    ]


def texts_outside(db: sqlite3.Connection, branch: int, *, until: int) -> set[str]:
    """Return the texts of operations held by steps up to `until`, including rejected ones."""
    return {row["text"] for row in _rows(db, branch, until)}


def _rows(db: sqlite3.Connection, branch: int, until: int) -> list[sqlite3.Row]:
    # Later steps count as well: they may hold the decisions on operations of earlier steps.
    line = line_json(db, branch, branches.ENDLESS - 1)
    return db.execute(_HELD, {"line": line, "until": until}).fetchall()
