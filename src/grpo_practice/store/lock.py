"""One process writes a run: an operating-system lock that dies with its holder.

One lock file serves the whole database; each run locks one byte of it, at a place that follows
from its name.
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_practice.errors import StoreError

_HELD = (errno.EACCES, errno.EAGAIN)
"""What the system says of a lock that another process has; all else is a trouble of its own."""


def _place(run: str) -> int:
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[:7], "big")


class RunLocks:
    """The locks this process holds on runs of one database."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._fd: int | None = None

    def _file(self) -> int:
        if self._fd is None:
            try:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as e:
                raise StoreError(
                    f"cannot write {self._path}, which keeps two processes from one run:"
                    f" {e.strerror}",
                    hint="check the permissions of the file and of its folder",
                ) from e
        return self._fd

    @contextmanager
    def hold(self, run: str) -> Iterator[bool]:
        """Yields True while this process alone holds the run; False when another one does.

        Within one process the lock does not exclude: the caller opens a run once.

        Raises:
            StoreError: Nothing can be locked there.
        """
        fd = self._file()
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(run))
            mine = True
        except OSError as e:
            if e.errno not in _HELD:
                raise StoreError(
                    f"cannot lock {self._path}: {e.strerror}",
                    hint="this folder has no file locks; put the database on a local disk",
                ) from e
            mine = False
        try:
            yield mine
        finally:
            if mine:
                fcntl.lockf(fd, fcntl.LOCK_UN, 1, _place(run))

    def close(self) -> None:
        """Every lock held here is released."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
