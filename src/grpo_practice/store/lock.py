"""One process writes a run: an operating-system lock that dies with its holder.

One lock file serves the whole database; each run locks one byte of it, at a place that follows
from its name.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _place(run: str) -> int:
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[:7], "big")


class RunLocks:
    """The locks this process holds on runs of one database."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._fd: int | None = None

    def _file(self) -> int:
        if self._fd is None:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._fd

    @contextmanager
    def hold(self, run: str) -> Iterator[bool]:
        """Yields True while this process alone holds the run; False when another one does.

        Within one process the lock does not exclude: the caller opens a run once.
        """
        fd = self._file()
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(run))
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(fd, fcntl.LOCK_UN, 1, _place(run))

    def close(self) -> None:
        """Every lock held here is released."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
