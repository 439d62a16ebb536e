"""Locks that let only one command write a run; the system releases them when their holder ends.

The locks are on the database file, regardless of the name by which it was opened. Each run locks
one byte far beyond the bytes that SQLite uses; the run's name determines its offset.
"""

import errno
import fcntl
import hashlib
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from grpo_practice.core.errors import LockedError, StoreError

OFD: int | None = getattr(fcntl, "F_OFD_SETLK", None)
"""Command for open file description locks, which SQLite's locks do not affect; None if missing."""
_OFD_TEST = {OFD: getattr(fcntl, "F_OFD_GETLK", None), fcntl.F_SETLK: fcntl.F_GETLK}
"""Command that tests for a lock, by the command that sets one."""
_BUSY = (errno.EACCES, errno.EAGAIN)
"""Errors for a lock held by another process; all other errors are real faults."""
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Errors of an operating system, or a file system, without open file description locks."""

# Far beyond the bytes near 1 GiB that SQLite locks, and below the largest offset of 2**63 - 1.
_RUNS, _NAMES = 1 << 61, 1 << 62
"""First bytes of two ranges: one byte for each run, and one for each name of the database."""
_SPAN = 1 << 56
_IS_APPLE = hasattr(fcntl, "F_FULLFSYNC")
_FLOCK = "qqihh" if _IS_APPLE else "hhqqi4x"
"""Layout of the system's `struct flock`."""


@dataclass(slots=True)
class _LockFile:
    """An open lock file of this process, shared by all its stores on this database."""

    fd: int
    command: int
    """`F_OFD_SETLK`, or `F_SETLK` if the system lacks it."""
    name: int
    """Byte for the name by which this process uses the database."""
    users: int = 0
    held: set[int] = field(default_factory=set)

    def set(self, kind: int, start: int) -> bool:
        """Lock or unlock a byte; return False if another process holds it."""
        try:
            fcntl.fcntl(self.fd, self.command, _flock(kind, start, 1))
        except OSError as e:
            if e.errno not in _BUSY:
                raise
            return False
        return True

    def is_locked(self, start: int, length: int) -> bool:
        """Return True if another process has locked a byte of the range."""
        test = _OFD_TEST[self.command]
        assert test is not None
        found = fcntl.fcntl(self.fd, test, _flock(fcntl.F_WRLCK, start, length))
        values = struct.unpack(_FLOCK, found)
        return bool((values[3] if _IS_APPLE else values[0]) != fcntl.F_UNLCK)


_files: dict[tuple[int, int], _LockFile] = {}
"""Open lock files by device and inode of the database."""
_guard = threading.Lock()


def _flock(kind: int, start: int, length: int) -> bytes:
    if _IS_APPLE:
        return struct.pack(_FLOCK, start, length, 0, kind, os.SEEK_SET)
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0)


def _place(name: str) -> int:
    # Seven bytes: the offset must stay below `_SPAN`, so that the two ranges never meet.
    return int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:7], "big")


def _drop_inherited() -> None:
    # A lock exists while any copy of its descriptor is open, so a forked child would keep its
    # parent's runs locked. dup2 keeps the number in use, since other code may still close it.
    for file in _files.values():
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, file.fd, inheritable=False)
        os.close(null)


os.register_at_fork(after_in_child=_drop_inherited)


class RunLocks:
    """The locks on runs of one database; a missing database file is created.

    The locks must be opened before SQLite opens the file and closed after SQLite closes it: closing
    any descriptor of a file drops the locks that SQLite holds on it in this process.

    Raises:
        LockedError: The database is in use under a different name.
        StoreError: The file cannot be locked.
    """

    def __init__(self, database: Path) -> None:
        self._path = database
        with _guard, self._explained():
            self._key, self._file = self._open(Path(os.path.realpath(database)))
            self._file.users += 1
        self._closed = False

    def _open(self, real: Path) -> tuple[tuple[int, int], _LockFile]:
        if not real.exists():
            # Closing this descriptor drops no lock, since nobody has opened the new file yet.
            os.close(os.open(real, os.O_RDWR | os.O_CREAT, 0o600))
        status = real.stat()
        key = (status.st_dev, status.st_ino)
        # Case folded, since names that differ only in case are one file on some systems.
        name = _NAMES + _place(f"{real.parent.stat().st_ino}/{real.name.casefold()}")
        if key not in _files:
            _files[key] = self._lock_file(real, name)
        elif _files[key].name != name:
            raise self._other_name()
        return key, _files[key]

    def _lock_file(self, real: Path, name: int) -> _LockFile:
        if OFD is not None:
            file = _LockFile(os.open(real, os.O_RDWR), OFD, name)
            try:
                return self._named(file)
            except OSError as e:
                if e.errno not in _UNKNOWN:
                    raise
        # Do not lock the database file itself: SQLite would drop such locks when it closes a
        # descriptor of it.
        beside = real.with_name(f"{real.name}.lock")
        fd = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
        return self._named(_LockFile(fd, fcntl.F_SETLK, name))

    def _named(self, file: _LockFile) -> _LockFile:
        """Mark the name as in use; close the file and raise if another name is in use."""
        try:
            file.set(fcntl.F_RDLCK, file.name)
            # SQLite names the log after the file: two names would mean two separate logs, which
            # damage the database. Lock first, then test: if two processes start together, at most
            # one of them continues.
            before, after = file.name - _NAMES, _NAMES + _SPAN - file.name - 1
            if (before and file.is_locked(_NAMES, before)) or (
                after and file.is_locked(file.name + 1, after)
            ):
                raise self._other_name()
        except BaseException:
            os.close(file.fd)
            raise
        return file

    def _other_name(self) -> LockedError:
        return LockedError(
            f"the database {self._path} is in use under a different name",
            hint="use that name: SQLite damages a file that is open under two names (a hard link,"
            " or a file that was moved or mounted while in use)",
        )

    @contextmanager
    def hold(self, run: str) -> Iterator[bool]:
        """Yield True and hold the run's lock while the block runs; yield False if it is not free.

        Raises:
            StoreError: The file cannot be locked.
        """
        file, place = self._file, _RUNS + _place(run)
        with _guard, self._explained():
            # Check our own table first: the system grants a process a lock that it already holds.
            mine = place not in file.held and file.set(fcntl.F_WRLCK, place)
            if mine:
                file.held.add(place)
        try:
            yield mine
        finally:
            if mine:
                with _guard:
                    file.set(fcntl.F_UNLCK, place)
                    file.held.discard(place)

    def held_here(self, run: str) -> bool:
        """Return True if this process holds the run's lock, through this store or another store."""
        return _RUNS + _place(run) in self._file.held

    def held_anywhere(self, run: str) -> bool:
        """Return True if any process holds the run's lock; raises the same errors as `hold`."""
        with _guard, self._explained():
            return self.held_here(run) or self._file.is_locked(_RUNS + _place(run), 1)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise StoreError(
                f"cannot lock the database {self._path}, so two processes could write the same"
                f" run: {e.strerror}",
                hint="check the permissions of the file and of its folder; if its file system has"
                " no locks, put the database on a local disk",
            ) from e

    def close(self) -> None:
        """Close the lock file, unless another store of this process still needs it."""
        with _guard:
            if self._closed:
                return
            self._closed = True
            self._file.users -= 1
            # Only its last user may close it: that releases the locks of all stores on this file.
            if self._file.users == 0:
                os.close(self._file.fd)
                del _files[self._key]
