"""A database file, open: how it is read and written, and closed."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast

from grpo_practice.store import steps
from grpo_practice.store.db import (
    WAIT_S,
    Connection,
    check_ours,
    connect,
    explained,
    in_memory,
    make,
    prepare,
)
from grpo_practice.store.lock import RunLocks
from grpo_practice.store.reading import empty, is_writable, open_to_look, read_only
from grpo_practice.store.records import StepRow
from grpo_practice.store.writer import Writer

T = TypeVar("T")


Mode = Literal["write", "look", "foresee"]
"""How a database is opened.

`write`: to read and to write it; it is made if it is missing, and only read if this user may not
write it. `look`: as it stands at this moment, never written or locked. `foresee`: the same, and a
file that is missing or empty is a database without rows; a dataset that is added is seen by this
connection alone.
"""


class OpenStore:
    """An open database. Reads are plain calls; writes go through the one writer thread."""

    def __init__(self, path: Path, mode: Mode = "write", *, wait_s: float = WAIT_S) -> None:
        """Open the database; see `Mode`.

        Close one that is only looked at soon: while it is open, the log of a run that is going on
        cannot shrink.

        Raises:
            StoreError: The file cannot be used; the message says why and what to do.
        """
        self.path, self.mode = path, mode
        self._writes: Writer | None = None
        """None if the database is only read."""
        self._locks: RunLocks | None = None
        self._lines: dict[int, list[StepRow]] | None = None if mode == "write" else {}
        """Steps of the lines that were read: most of a page's time, and the same for all of it."""
        with explained(path), ExitStack() as opened:
            if mode == "write":
                make(path)
            if mode != "write" or not is_writable(path):
                self._db = opened.enter_context(closing(_as_it_stands(path, mode, wait_s)))
                if mode != "write":
                    self._db.execute("BEGIN")
            else:
                # First of all: it has the file open as long as SQLite has.
                self._locks = RunLocks(path)
                # Released last: as long as rows are written, no other process may take the run.
                opened.callback(self._locks.close)
                prepare(path, wait_s=wait_s)
                self._db = opened.enter_context(closing(connect(path, wait_s=wait_s)))
                # A write by this connection would pass by the queue, and could overtake what it
                # rests on.
                self._db.execute("PRAGMA query_only = ON")
                self._writes = Writer(path, wait_s=wait_s)
                opened.callback(self._writes.close)
            self._db.path = path
            self._opened = opened.pop_all()

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
        self._opened.close()

    def interrupt(self) -> None:
        """End the query that another thread has under way."""
        self._db.interrupt()

    def read(self, question: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return what a query of this package gives, on the reading connection."""
        with explained(self.path):
            if self._lines is None or question is not steps.on_line:
                return question(self._db, *args, **kwargs)
            (branch,) = args
            if branch.id not in self._lines:
                self._lines[branch.id] = cast(list[StepRow], question(self._db, branch))
            return cast(T, [*self._lines[branch.id]])

    def each(self, question: Callable[..., Iterator[T]], *args: Any, **kwargs: Any) -> Iterator[T]:
        """Yield what a query of this package finds, one by one, on the reading connection."""
        with explained(self.path):
            yield from question(self._db, *args, **kwargs)

    def each_apart(
        self, question: Callable[..., Iterator[T]], *args: Any, **kwargs: Any
    ) -> Iterator[T]:
        """Yield what a query finds on a connection of its own: a long one, read in a thread."""
        with closing(open_to_look(self.path)) as db, explained(self.path):
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


def _as_it_stands(path: Path, mode: Mode, wait_s: float) -> Connection:
    """Return a connection that reads the database.

    Raises:
        StoreError: It is empty, and nothing is to be foreseen in it.
    """
    if mode == "foresee" and not path.exists():
        return in_memory(path)
    db = open_to_look(path, wait_s=wait_s)
    if check_ours(db, path, whole=False):
        return db
    db.close()
    if mode == "foresee":
        return in_memory(path)
    raise empty(path)
