"""An open database file: how it is read, written and closed."""

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

`write`: for reading and writing; a missing file is created, and a file that this user may not write
to is opened for reading only. `look`: a snapshot of this moment, never written or locked.
`foresee`: the same, except that a missing or empty file acts as a database without rows; an added
dataset is visible to this connection only.
"""


class OpenStore:
    """An open database. Reads are plain calls; writes go through a single writer thread."""

    def __init__(self, path: Path, mode: Mode = "write", *, wait_s: float = WAIT_S) -> None:
        """Open the database; see `Mode`.

        Close a read-only store soon: while it is open, the log of an active run cannot shrink.

        Raises:
            StoreError: The file cannot be used; the message explains why and how to fix it.
        """
        self.path, self.mode = path, mode
        self._writes: Writer | None = None
        """Writer; None if the database is only read."""
        self._locks: RunLocks | None = None
        self._lines: dict[int, list[StepRow]] | None = None if mode == "write" else {}
        """Cache of the steps on each line; reading them is slow, and a page needs them often."""
        with explained(path), ExitStack() as opened:
            if mode == "write":
                make(path)
            if mode != "write" or not is_writable(path):
                self._db = opened.enter_context(closing(_as_it_stands(path, mode, wait_s)))
                if mode != "write":
                    # One read transaction, so that all queries see the same snapshot.
                    self._db.execute("BEGIN")
            else:
                # Opened first and closed last, because closing any descriptor of a file drops its
                # locks.
                self._locks = RunLocks(path)
                # Released last: no other process may take a run while rows are being written.
                opened.callback(self._locks.close)
                prepare(path, wait_s=wait_s)
                self._db = opened.enter_context(closing(connect(path, wait_s=wait_s)))
                # A write on this connection would bypass the writer's queue, and could overtake
                # rows that it depends on.
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
        """Interrupt the query that another thread is running."""
        self._db.interrupt()

    def read(self, question: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the result of a query of this package, on the reading connection."""
        with explained(self.path):
            # Steps are cached only if nothing is written, because a writer's own steps change.
            if self._lines is None or question is not steps.on_line:
                return question(self._db, *args, **kwargs)
            (branch,) = args
            if branch.id not in self._lines:
                self._lines[branch.id] = cast(list[StepRow], question(self._db, branch))
            return cast(T, [*self._lines[branch.id]])

    def each(self, question: Callable[..., Iterator[T]], *args: Any, **kwargs: Any) -> Iterator[T]:
        """Yield the results of a query of this package one by one, on the reading connection."""
        with explained(self.path):
            yield from question(self._db, *args, **kwargs)

    def each_apart(
        self, question: Callable[..., Iterator[T]], *args: Any, **kwargs: Any
    ) -> Iterator[T]:
        """Yield the results of a query on a separate connection, for a long query in a thread."""
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
        StoreError: The database is empty, and the mode is not `foresee`.
    """
    if mode == "foresee" and not path.exists():
        return in_memory(path)
    db = open_to_look(path, wait_s=wait_s)
    # A file without a version is empty, since no command has written to it.
    if check_ours(db, path, whole=False):
        return db
    db.close()
    if mode == "foresee":
        return in_memory(path)
    raise empty(path)
