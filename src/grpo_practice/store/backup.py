"""Copies of the database, made while other processes use it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from grpo_practice.core.errors import StoreError
from grpo_practice.core.files import plain_file, replacement
from grpo_practice.store.db import PARTS, explain
from grpo_practice.store.reading import open_to_look


def why_no_copy(path: Path, target: Path) -> str | None:
    """Return why the database must not be copied to `target`, or None if it may be.

    A copy must replace neither the database nor its log, under any name: the log holds answers that
    no other file contains yet. The files of other databases are protected as well.
    """
    for own in (path, path.resolve()):
        for part in (own, *(own.with_name(own.name + end) for end in PARTS)):
            # Compare files, not names: a hard link or another spelling leads to the same file.
            if part.exists() and target.exists() and target.samefile(part):
                return "is the database itself" if part == own else f"is a part of {path}"
    # Protect a part that does not exist yet, too, because SQLite would take such a file for its own
    # log.
    names = (target.name, Path(os.path.realpath(target)).name)
    if any(name.casefold().endswith(PARTS) for name in names):
        return "has the name of a part of a database"
    return None


def copy(path: Path, target: Path) -> None:
    """Replace `target` with a private copy of the current database, or leave it unchanged.

    Other processes may write to the database during the copy. If `target` is a link, the file that
    it leads to is replaced.

    Raises:
        StoreError: The database is damaged, or the copy cannot be written.
    """
    try:
        file = plain_file(target)
        if file is None:
            raise StoreError(f"cannot copy to {target}: it is not a regular file")
        _replace(path, file)
    except (sqlite3.Error, OSError) as e:
        # Only `malformed` is about the source; all other errors come from writing the copy.
        raise explain(e, path if "malformed" in str(e) else target) from e


def _replace(path: Path, target: Path) -> None:
    parts = ("-wal", "-shm", "-journal")
    with replacement(target, mode=0o600, flushed=True, parts=parts) as temporary:
        with closing(open_to_look(path)) as source, closing(sqlite3.connect(temporary)) as made:
            # Use SQLite's backup instead of copying the file, because some rows may still be only
            # in the -wal.
            source.backup(made)
            # SQLite copies damaged pages without an error, so check the copy.
            found = made.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreError(
                f"the database {path} is damaged ({found}); it was not copied",
                hint="to see the details: grpo-practice db check",
            )
