"""Steps of training runs: their rollouts, updates and checkpoints, and the folders of these."""

import json
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path

from grpo_practice.store import rollouts, step_totals
from grpo_practice.store.branches import rows_on_line
from grpo_practice.store.db import insert, insert_all, now
from grpo_practice.store.records import Branch, CheckpointRow, TrainedStep, UpdateRow


def close(db: sqlite3.Connection, branch: Branch, step: int, done: TrainedStep) -> None:
    """Write a step's rollouts, verdicts, groups, updates and status, all or nothing."""
    saves = [
        rollouts.Save(branch.id, step, rollout, done.prompt, branch.verifier_id)
        for rollout in done.rollouts
    ]
    rollouts.save(db, saves)
    place = {"branch_id": branch.id, "step": step}
    insert_all(db, "groups", [place | asdict(group) for group in done.groups])
    insert_all(db, "updates", [place | asdict(update) for update in done.updates])
    db.execute(
        """UPDATE steps SET status = 'closed', stats = :stats, closed_at = :closed_at
            WHERE branch_id = :branch_id AND step = :step""",
        {"stats": json.dumps(dict(done.stats)), "closed_at": now(), **place},
    )
    step_totals.write_totals(db, branch.id, step)


def add_checkpoint(db: sqlite3.Connection, branch: Branch, made: CheckpointRow) -> None:
    """Insert the row of a checkpoint that is on disk."""
    insert(db, "checkpoints", asdict(replace(made, made_at=now())) | {"branch_id": branch.id})


def updates(db: sqlite3.Connection, branch: Branch) -> list[UpdateRow]:
    """Return the updates of a branch's line, in order."""
    names = ", ".join(field.name for field in fields(UpdateRow))
    sql = f"SELECT {names} FROM updates WHERE branch_id = ? AND step >= ? AND step < ?"
    rows = [UpdateRow(**row) for row in rows_on_line(db, branch, sql)]
    return sorted(rows, key=lambda row: (row.step, row.inner))


def checkpoints(db: sqlite3.Connection, branch: Branch) -> list[CheckpointRow]:
    """Return the checkpoints of a branch's line, in order."""
    names = ", ".join(field.name for field in fields(CheckpointRow))
    sql = f"SELECT {names} FROM checkpoints WHERE branch_id = ? AND step >= ? AND step < ?"
    rows = [CheckpointRow(**row) for row in rows_on_line(db, branch, sql)]
    return sorted(rows, key=lambda row: row.step)


def checkpoint_paths(db: sqlite3.Connection, runs: Sequence[str]) -> list[str]:
    """Return the checkpoint folders of these runs, on all branches."""
    rows = db.execute(
        """SELECT path FROM checkpoints JOIN branches USING (branch_id)
            WHERE run_id IN (SELECT value FROM json_each(?))""",
        (json.dumps(runs),),
    )
    return [path for (path,) in rows]


ENDING = ".train"
"""Suffix of the folder next to a database that holds all its checkpoints."""


def checkpoints_root(database: Path) -> Path:
    """Return the folder of all checkpoints of a database."""
    return database.resolve().with_name(f"{database.name}{ENDING}")


def checkpoint_folder(database: Path, path: str) -> Path | None:
    """Return the folder of a checkpoint, or None if it does not exist.

    A folder outside the database's own checkpoint folder is never returned, because an untrusted
    database could name any folder.
    """
    root = checkpoints_root(database)
    # Resolved before the test: `..` or a link in a foreign path must not lead outside.
    folder = (root.parent / path).resolve()
    # A root that is a link could lead anywhere, and folders below it must not be deleted.
    below = not root.is_symlink() and root in folder.parents
    return folder if below and folder.is_dir() else None


def remove_checkpoints(database: Path, paths: Iterable[str]) -> None:
    """Delete folders of checkpoints, and their parent folders if these become empty."""
    root = checkpoints_root(database)
    for path in paths:
        folder = checkpoint_folder(database, path)
        if folder is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        for above in folder.parents:
            if above != root and root not in above.parents:
                break
            with suppress(OSError):  # it contains something else
                above.rmdir()
