"""Opens a database for reading without changing it, even a database that cannot be written."""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from grpo_practice.core.errors import StoreError
from grpo_practice.store.db import WAIT_S, Connection, check_ours, connect, explained
from grpo_practice.store.typed_rows import CHECK_HINT

_AS_IT_STANDS = "mode=ro&immutable=1"
"""Query of an SQLite URI: use neither locks nor a log."""


def is_writable(path: Path) -> bool:
    """Return True if this user may write the database, or create it if it does not exist."""
    real = Path(os.path.realpath(path))
    if not real.exists():
        return True
    # os.access tests the real user by default, but opening a file uses the effective one.
    effective = os.access in os.supports_effective_ids
    # SQLite creates a log next to the file, unless another process has created it.
    places = (real, real.parent) if not _part(real, "-wal").exists() else (real,)
    return all(os.access(place, os.W_OK, effective_ids=effective) for place in places)


def open_to_look(path: Path, *, wait_s: float = WAIT_S, whole: bool = True) -> Connection:
    """Open a connection that changes nothing, not even the log left by a killed process.

    `whole`: also require the schema and branches to be as this program makes them; see
    `check_shape`.

    Raises:
        StoreError: The database is not ours, or cannot be opened.
    """
    with explained(path):
        if not is_writable(path):
            db = _open_unwritable(path)
        else:
            # `rw` removes the log when it closes, even one that a killed process left and that must
            # stay; `ro` leaves behind a log of its own.
            mode = "ro" if _part(path, "-wal").exists() else "rw"
            db = connect(path, wait_s=wait_s, mode=f"mode={mode}")
        try:
            db.execute("PRAGMA query_only = ON")  # needed with the mode `rw`
            check_ours(db, path, whole=whole)
        except BaseException:
            db.close()
            raise
        return db


def _open_unwritable(path: Path) -> Connection:
    """Open a database that cannot be written, with its log, and create no file next to it.

    A file that SQLite created there for this user could keep the database's owner from writing.
    """
    log = _part(path, "-wal")
    if not log.exists():
        return connect(path, mode=_AS_IT_STANDS)
    if _part(path, "-shm").exists():
        with suppress(sqlite3.OperationalError):  # this user may not read it
            return connect(path, mode="mode=ro")
    with tempfile.TemporaryDirectory(prefix="grpo-practice-") as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(path, copy)
        shutil.copyfile(log, _part(copy, "-wal"))
        with closing(connect(copy)) as made:
            made.execute("PRAGMA journal_mode = DELETE")  # moves the log into the file
        db = connect(copy, mode=_AS_IT_STANDS)
        db.path = path
        return db  # an open file stays readable after its folder is removed


def _part(path: Path, end: str) -> Path:
    # SQLite follows links before it derives the names of the parts.
    real = Path(os.path.realpath(path))
    return real.with_name(real.name + end)


def deleted_meanwhile() -> StoreError:
    """Return the error for a run that was deleted while it was being read."""
    return StoreError(
        "the run no longer exists: it was deleted while it was being read",
        hint=f"if nobody deleted it, the database may be damaged; {CHECK_HINT}",
    )


def read_only(path: Path) -> StoreError:
    """Return the error for writing to a database that this user may only read."""
    return StoreError(
        f"the database {path} is read-only",
        hint="check the permissions of the file and of its folder, and how its disk is mounted",
    )


def empty(path: Path) -> StoreError:
    """Return the error for reading a file that no command has written to."""
    return StoreError(f"{path} is empty: it contains no runs", hint="grpo-practice init")
