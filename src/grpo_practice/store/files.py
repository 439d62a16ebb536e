"""Files of an open database, and whether their names still lead to the same files."""

import sqlite3
from pathlib import Path

from grpo_practice.core.errors import StoreError
from grpo_practice.store.db import now


class Files:
    """The database with its `-wal` and `-shm` files, as they were when it was opened for writing.

    All three exist while a connection is open. If somebody removes or replaces one, SQLite silently
    continues to write to a file that nobody will ever open again.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self._path, self._db = path, db
        db.execute("SELECT count(*) FROM sqlite_schema")  # a first read creates the other files
        self._begun = now()
        names = (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
        self._known = {file: _inode(file) for file in names}

    def trouble(self) -> StoreError | None:
        """Return an error that describes a removed or replaced file, or None."""
        if all(_inode(file) == known for file, known in self._known.items()):
            return None
        if _inode(self._path) != self._known[self._path]:
            return StoreError(
                f"the database {self._path} was removed or replaced while it was being written;"
                f" everything saved since {self._begun} is lost",
                hint="restore the file or a copy of it, then run the command again",
            )
        return StoreError(
            f"a part of the database {self._path} (its -wal or -shm) was removed while it was"
            f" being written; {self._rescue()}",
            hint="check it with `grpo-practice db check`, then run the command again",
        )

    def _rescue(self) -> str:
        """Save the contents of the removed log, unless a new log exists; describe the outcome."""
        # A new log is somebody else's: writing our log into the database could damage both.
        parts = [file for file in self._known if file != self._path]
        if all(_inode(file) in (None, self._known[file]) for file in parts):
            try:
                # The removed log can still be read through the open descriptor.
                busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except sqlite3.Error:
                busy = 1
            if not busy:
                return "everything saved is now in the database itself"
        return f"everything saved since {self._begun} may be lost"


def _inode(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
