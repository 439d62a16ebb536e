"""One command writes a run: an operating-system lock that dies with its holder.

One lock file serves the whole database; each run locks one byte of it, at a place that follows
from its name.
"""

import errno
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from grpo_practice.errors import StoreError

_BUSY = (errno.EACCES, errno.EAGAIN)
"""Errors for a lock that another process has; all others are faults of their own."""


@dataclass(slots=True)
class _LockFile:
    """A lock file as this process has it open, once for all databases that are open here.

    The system's locks belong to the process: it grants one twice, and drops them all as soon as
    any descriptor of the file is closed.
    """

    fd: int
    users: int = 0
    held: set[int] = field(default_factory=set)


_files: dict[tuple[int, int], _LockFile] = {}
"""Open lock files by device and inode."""
_guard = threading.Lock()


def _place(run: str) -> int:
    # 7 bytes: the place of a lock is a signed number of 64 bits.
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[:7], "big")


class RunLocks:
    """The locks on runs of one database."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._key: tuple[int, int] | None = None

    def _file(self) -> _LockFile:
        if self._key is None:
            try:
                # Opened to be made only where there is none: closing any descriptor of the file
                # would drop all locks that this process has on it.
                if not self._path.exists():
                    os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
                status = self._path.stat()
                key = (status.st_dev, status.st_ino)
                if key not in _files:
                    _files[key] = _LockFile(os.open(self._path, os.O_RDWR))
            except OSError as e:
                raise StoreError(
                    f"cannot write {self._path}, which keeps two processes from one run:"
                    f" {e.strerror}",
                    hint="check the permissions of the file and of its folder",
                ) from e
            _files[key].users += 1
            self._key = key
        return _files[self._key]

    @contextmanager
    def hold(self, run: str) -> Iterator[bool]:
        """Yield True while nobody else holds the run, in this process or another; else False.

        Raises:
            StoreError: Nothing can be locked there.
        """
        place = _place(run)
        with _guard:
            file = self._file()
            # Our own table first: the system grants a process the lock that it has already.
            mine = place not in file.held and self._lock(file.fd, place)
            if mine:
                file.held.add(place)
        try:
            yield mine
        finally:
            if mine:
                with _guard:
                    fcntl.lockf(file.fd, fcntl.LOCK_UN, 1, place)
                    file.held.discard(place)

    def _lock(self, fd: int, place: int) -> bool:
        try:
            # Not flock(), which knows no bytes: one run at work would lock out all others.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as e:
            if e.errno not in _BUSY:
                raise StoreError(
                    f"cannot lock {self._path}: {e.strerror}",
                    hint="this folder has no file locks; put the database on a local disk",
                ) from e
            return False
        return True

    def close(self) -> None:
        """Close the lock file, unless somebody here still needs it."""
        with _guard:
            if self._key is None:
                return
            file = _files[self._key]
            file.users -= 1
            # Only by its last user: closing it frees the runs of every other store on this file.
            if file.users == 0:
                os.close(file.fd)
                del _files[self._key]
            self._key = None
