"""A copy of the database, made while others use it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from grpo_practice.errors import StoreError
from grpo_practice.plain_file import plain_file, replacement
from grpo_practice.store.db import PARTS, explain
from grpo_practice.store.reading import open_to_look


def why_no_copy(path: Path, target: Path) -> str | None:
    """Return what speaks against a copy of the database at `target`; None when nothing does.

    The log holds answers that are in no other file yet, so it is no more to be replaced than the
    database, under whatever name; and the parts of other databases are left alone as well.
    """
    for own in (path, path.resolve()):
        for part in (own, *(own.with_name(own.name + end) for end in PARTS)):
            # Not by name: a hard link, or another way to write the path, is the same file.
            if part.exists() and target.exists() and target.samefile(part):
                return "is the database itself" if part == own else f"is a part of {path}"
    names = (target.name, Path(os.path.realpath(target)).name)
    if any(name.casefold().endswith(PARTS) for name in names):
        return "has the name of a part of a database"
    return None


def copy(path: Path, target: Path) -> None:
    """Replace `target` by a private copy of the database as it is now, or leave it as it was.

    Others may write the database meanwhile. Links are followed: the file they lead to is replaced.

    Raises:
        StoreError: The database is damaged, or the copy cannot be written.
    """
    try:
        file = plain_file(target)
        if file is None:
            raise StoreError(f"cannot copy to {target}: it is no plain file")
        _replace(path, file)
    except (sqlite3.Error, OSError) as e:
        raise explain(e, path if "malformed" in str(e) else target) from e


def _replace(path: Path, target: Path) -> None:
    parts = ("-wal", "-shm", "-journal")
    with replacement(target, mode=0o600, flushed=True, parts=parts) as temporary:
        with closing(open_to_look(path)) as source, closing(sqlite3.connect(temporary)) as made:
            # Not a copy of the file: part of what was saved may be in the -wal alone.
            source.backup(made)
            found = made.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreError(
                f"the database {path} is damaged ({found}); it was not copied",
                hint="grpo-practice db check says what is wrong",
            )
