"""A database file, open: how it is read and written, and closed."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from grpo_practice.store.db import (
    WAIT_S,
    Connection,
    check_ours,
    connect,
    explained,
    make,
    prepare,
)
from grpo_practice.store.lock import RunLocks
from grpo_practice.store.reading import empty, is_writable, open_to_look, read_only
from grpo_practice.store.writer import Writer

T = TypeVar("T")


class OpenStore:
    """An open database. Reads are plain calls; writes go through the one writer thread."""

    def __init__(
        self, path: Path, *, wait_s: float = WAIT_S, scratch_of: Path | None = None
    ) -> None:
        """Open the database; make it first where there is none.

        `scratch_of` is the database that this one is a copy of, and its name in messages; nothing
        that is written here waits for the disk.

        Raises:
            StoreError: The file cannot be used; the message says why and what to do.
        """
        self.path = scratch_of or path
        self._file = path
        self._writes: Writer | None = None
        """None where this user may only read the database."""
        self._locks: RunLocks | None = None
        make(path)
        if not is_writable(path):
            self._db = self._open_unwritable(path, wait_s)
            return
        # First of all: it has the file open as long as SQLite has.
        self._locks = RunLocks(path)
        try:
            prepare(path, wait_s=wait_s)
            with explained(path):
                self._db = connect(path, wait_s=wait_s)
                self._db.path = self.path
                # A write by this connection would pass by the queue, and could
                # overtake what it rests on.
                self._db.execute("PRAGMA query_only = ON")
            self._writes = Writer(path, wait_s=wait_s, durable=scratch_of is None)
        except BaseException:
            self._locks.close()
            raise

    def _open_unwritable(self, path: Path, wait_s: float) -> Connection:
        db = open_to_look(path, wait_s=wait_s)
        db.path = self.path
        if check_ours(db, path, whole=False) == 0:
            db.close()
            raise empty(self.path)
        return db

    @property
    def _writer(self) -> Writer:
        if self._writes is None:
            raise read_only(self.path)
        return self._writes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write everything to disk and release the locks; raise StoreError if the file is gone."""
        try:
            if self._writes is not None:
                self._writes.close()
        finally:
            self._db.close()
            # Last: as long as rows are written, no other process may take the run.
            if self._locks is not None:
                self._locks.close()

    def read(self, question: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return what a query of this package gives, on the reading connection."""
        with explained(self.path):
            return question(self._db, *args, **kwargs)

    def each(self, question: Callable[..., Iterator[T]], *args: Any, **kwargs: Any) -> Iterator[T]:
        """Yield what a query of this package finds, one by one, on the reading connection."""
        with explained(self.path):
            yield from question(self._db, *args, **kwargs)

    def each_apart(
        self, question: Callable[..., Iterator[T]], *args: Any, **kwargs: Any
    ) -> Iterator[T]:
        """Yield what a query finds on a connection of its own: a long one, read in a thread."""
        with closing(open_to_look(self._file)) as db, explained(self.path):
            yield from question(db, *args, **kwargs)

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._writer.submit(work).result()

    def flush(self) -> None:
        """Return once everything written up to now is on disk."""
        self._write(lambda _: None)

    async def flushed(self) -> None:
        """Return once everything written up to now is on disk."""
        await self._write_soon(lambda _: None)

    async def _write_soon(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._writer.write(work)
