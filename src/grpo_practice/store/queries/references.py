"""Queries about the runs, branches and libraries that a reference names."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_practice.store.db import get_text


@dataclass(frozen=True, slots=True)
class BranchRecord:
    """Identity and configuration that were recorded for a branch."""

    identity: Mapping[str, Any]
    """Identity keys, flat and dotted, with secrets hidden."""
    config_text: str
    """YAML after composition, with variables not yet replaced and secrets hidden."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Run, branch and step in which a library was made."""

    run: str
    branch_id: int
    step: int | None
    """Step; None for the library a branch started with."""


def branch_ids(db: sqlite3.Connection, run: str) -> list[int]:
    """Return the ids of a run's branches, oldest first."""
    rows = db.execute("SELECT branch_id FROM branches WHERE run_id = ? ORDER BY 1", (run,))
    return [row[0] for row in rows]


def record(db: sqlite3.Connection, branch_id: int) -> BranchRecord:
    """Return the identity and the configuration of a branch."""
    row = db.execute(
        "SELECT identity, config_sha FROM branches WHERE branch_id = ?", (branch_id,)
    ).fetchone()
    return BranchRecord(json.loads(row[0]), get_text(db, row[1]))


def origin(db: sqlite3.Connection, library_id: int) -> Origin | None:
    """Return the origin of a library, or None if the library does not exist."""
    row = db.execute(
        """SELECT run_id, step, coalesce(branch_id, (SELECT min(b.branch_id) FROM branches b
             WHERE b.library_id = l.library_id)) AS branch_id
             FROM libraries l WHERE library_id = ?""",
        (library_id,),
    ).fetchone()
    return Origin(row["run_id"], row["branch_id"], row["step"]) if row else None


def edited_from(db: sqlite3.Connection, library_id: int) -> int | None:
    """Return the library that a person edited into this one; None if no person did."""
    row = db.execute(
        "SELECT parent_id FROM libraries WHERE library_id = ? AND cause IN ('edit', 'approve')",
        (library_id,),
    ).fetchone()
    return row["parent_id"] if row else None


def step_before(db: sqlite3.Connection, library_id: int) -> int:
    """Return the step whose library this one derives from; -1 if there is no such step."""
    row = db.execute(
        """WITH RECURSIVE up(library_id, run_id, step, parent_id, height) AS (
             SELECT library_id, run_id, step, parent_id, 0 FROM libraries WHERE library_id = ?
             UNION ALL
             SELECT l.library_id, l.run_id, l.step, l.parent_id, height + 1
               FROM libraries l JOIN up ON l.library_id = up.parent_id AND l.run_id = up.run_id
              WHERE up.step IS NULL)
           SELECT step FROM up WHERE step IS NOT NULL ORDER BY height LIMIT 1""",
        (library_id,),
    ).fetchone()
    return -1 if row is None else int(row[0])


def any_system_prompt(db: sqlite3.Connection, branch_id: int) -> tuple[str, int | None] | None:
    """Return the system prompt and the library of one played rollout of a branch, or None.

    All rollouts of a branch share the instructions, so any rollout shows them. The system prompt of
    an attempt that was recorded before the run is unknown, and stored as an empty text.
    """
    row = db.execute(
        """SELECT t.body, r.library_id FROM rollouts r JOIN texts t ON t.sha256 = r.system_sha
            JOIN rollout_bodies b USING (rollout_id)
            WHERE r.branch_id = ? AND b.messages IS NULL LIMIT 1""",
        (branch_id,),
    ).fetchone()
    return (row[0], row[1]) if row else None
