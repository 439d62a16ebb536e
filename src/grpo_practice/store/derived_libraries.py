"""Libraries that no step makes: of another one, by a person's edits or by what was measured."""

import sqlite3
from collections.abc import Sequence
from typing import Literal

from grpo_practice.prompts.system import library_sha
from grpo_practice.store import libraries
from grpo_practice.store.close_step import Writing
from grpo_practice.store.records import Branch
from grpo_practice.types import Edit, Library

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
    """Return the library that edits make of a stored one, as it is stored.

    The operations belong to no step, and what the run's `last` means stays. Equal texts are one
    library: where the run has one of this text, that is returned and nothing is inserted.
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
