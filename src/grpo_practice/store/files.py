"""The files an open database consists of, and whether they are still the ones of that name."""

import sqlite3
from pathlib import Path

from grpo_practice.errors import StoreError
from grpo_practice.store.db import now


class Files:
    """The database and its `-wal` and `-shm`, as they were when it was opened for writing.

    They stay as long as a connection is open. If somebody removes or replaces one, SQLite
    goes on writing into a file that nobody will ever open again, and says nothing.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self._path, self._db = path, db
        db.execute("SELECT count(*) FROM sqlite_schema")  # now all of them are there
        self._begun = now()
        names = (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
        self._known = {file: _inode(file) for file in names}

    def trouble(self) -> StoreError | None:
        """Return what has become of the files; None while all is well."""
        if all(_inode(file) == known for file, known in self._known.items()):
            return None
        if _inode(self._path) != self._known[self._path]:
            return StoreError(
                f"the database {self._path} was removed or replaced while it was being written;"
                f" what was saved since {self._begun} is lost",
                hint="put the file back, or a copy of it, then run the command again",
            )
        return StoreError(
            f"a part of the database {self._path} (its -wal or -shm) was removed while it was"
            f" being written; {self._rescue()}",
            hint="look with `grpo-practice db check`, then run the command again",
        )

    def _rescue(self) -> str:
        """Save what the removed log held, unless somebody began another; say what came of it."""
        # A new log is somebody else's: to write ours into the database below it may damage both.
        parts = [file for file in self._known if file != self._path]
        if all(_inode(file) in (None, self._known[file]) for file in parts):
            try:
                # The removed log can still be read, by the descriptor that is open.
                busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except sqlite3.Error:
                busy = 1
            if not busy:
                return "all that was saved is in the database itself now"
        return f"what was saved since {self._begun} may be lost"


def _inode(path: Path) -> tuple[int, int] | None:
    """Return which file it is; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
