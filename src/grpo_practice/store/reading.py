"""Opens a database to read it, and changes nothing; also one that cannot be written."""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from grpo_practice.errors import StoreError
from grpo_practice.store.db import WAIT_S, Connection, check_ours, connect, explained


def is_writable(path: Path) -> bool:
    """Return True when this user may write the database, or make it where there is none."""
    real = Path(os.path.realpath(path))
    if not real.exists():
        return True
    effective = os.access in os.supports_effective_ids
    # SQLite makes a log beside the file, unless another process has made it.
    places = (real, real.parent) if not _log(real).exists() else (real,)
    return all(os.access(place, os.W_OK, effective_ids=effective) for place in places)


def open_to_look(path: Path, *, wait_s: float = WAIT_S) -> Connection:
    """Open a connection that changes nothing, not even what a killed process left behind.

    Raises:
        StoreError: It is not ours, or cannot be opened.
    """
    with explained(path):
        # Only a connection that may write clears away its own log, and the one it finds with it.
        mode = "ro" if _log(path).exists() or not is_writable(path) else "rw"
        try:
            db = connect(path, wait_s=wait_s, mode=f"mode={mode}")
        except sqlite3.OperationalError:
            if is_writable(path):
                raise
            db = _open_unwritable(path)
        try:
            db.execute("PRAGMA query_only = ON")  # beside the mode, which is rw without a log
            check_ours(db, path)
        except BaseException:
            db.close()
            raise
        return db


def _open_unwritable(path: Path) -> Connection:
    """Open a database beside which SQLite can make no file: as it stands, with its log."""
    log = _log(path)
    if not log.exists() or not log.stat().st_size:
        # SQLite asks for no lock and no log then.
        return connect(path, mode="mode=ro&immutable=1")
    with tempfile.TemporaryDirectory(prefix="grpo-practice-") as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(path, copy)
        shutil.copyfile(log, _log(copy))
        with closing(connect(copy)) as db:
            db.execute("PRAGMA journal_mode = DELETE")  # moves the log into the file
        db = connect(copy, mode="mode=ro&immutable=1")
        db.path = path
        return db


def _log(path: Path) -> Path:
    # SQLite follows links before it names the log.
    real = Path(os.path.realpath(path))
    return real.with_name(f"{real.name}-wal")


def read_only(path: Path) -> StoreError:
    """Return the error of a write to a database that this user may only read."""
    return StoreError(
        f"the database {path} is read-only",
        hint="check the permissions of the file and of its folder, and how its disk is mounted",
    )
