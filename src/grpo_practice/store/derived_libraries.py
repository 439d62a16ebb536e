"""Libraries derived outside steps: by a person's edits, or by measured effects."""

import sqlite3
from collections.abc import Sequence
from typing import Literal

from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import Edit, Library
from grpo_practice.store import libraries
from grpo_practice.store.close_step import Writing
from grpo_practice.store.records import Branch

DerivedCause = Literal["edit", "prune", "approve"]
Source = Literal["human", "prune"]


def derive(
    db: sqlite3.Connection,
    branch: Branch,
    parent: Library,
    edits: Sequence[Edit],
    *,
    cause: DerivedCause,
    source: Source,
) -> Library:
    """Apply edits to a stored library, and return the stored result.

    The operations belong to no step, and the run's `last` library stays the same. If the run
    already has a library with the resulting text, that library is returned and nothing is inserted.
    """
    made = libraries.edited(parent, edits)
    row = db.execute(
        "SELECT library_id FROM libraries WHERE run_id = ? AND sha256 = ? ORDER BY 1",
        (branch.run, library_sha(made)),
    ).fetchone()
    if row is None:
        rows = [(edit, {"source": source, "from_ops": "[]"}) for edit in edits]
        return libraries.load(db, Writing(db, branch, None, parent.id).put_edits(rows, made, cause))
    return libraries.load(db, row["library_id"])
