"""Queries about training data: which questions evaluations ask, which tools were offered."""

import json
import sqlite3
from typing import Any

from grpo_practice.store.db import get_text
from grpo_practice.store.records import Branch, StepRow
from grpo_practice.store.steps import row_of


def next_step(db: sqlite3.Connection, branch: Branch, after: int) -> StepRow | None:
    """Return the first planned step after `after` on a branch's line; None after the last step."""
    for segment in sorted(branch.line, key=lambda segment: segment.first):
        row = db.execute(
            """SELECT * FROM steps WHERE branch_id = ? AND step >= ? AND step < ?
                ORDER BY step LIMIT 1""",
            (segment.branch_id, max(segment.first, after + 1), segment.end),
        ).fetchone()
        if row is not None:
            return row_of(row)
    return None


def evaluated_samples(db: sqlite3.Connection) -> set[int]:
    """Return the samples that any evaluation in this database asks or plans to ask."""
    rows = db.execute(
        """SELECT DISTINCT json_extract(slot.value, '$[0]')
             FROM runs r JOIN branches b USING (run_id) JOIN steps s USING (branch_id),
                  json_each(s.plan) AS slot
            WHERE r.kind = 'eval'"""
    )
    return {sample for (sample,) in rows}


def offered_tools(db: sqlite3.Connection, call_id: int) -> list[dict[str, Any]]:
    """Return the schemas of the tools that a model call offered."""
    row = db.execute("SELECT params FROM call_bodies WHERE call_id = ?", (call_id,)).fetchone()
    if row is None or row[0] is None:
        return []
    tools: list[dict[str, Any]] = json.loads(get_text(db, row[0])).get("tools") or []
    return tools
