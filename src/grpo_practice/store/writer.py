"""The writer thread, which commits everything queued since its last commit.

One commit per row, made in the event loop, would stall the loop and do about 1,000 rows/s with
`synchronous=FULL`. Batches are 25 times faster, and each is acknowledged within milliseconds. Rows
of one kind are written together, and an event loop is woken once per commit, not once per row.
"""

import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grpo_practice.core.errors import StoreError
from grpo_practice.store import invocations
from grpo_practice.store.db import WAIT_S, connect, explain, explained, now, transaction

if TYPE_CHECKING:
    import asyncio


T = TypeVar("T")
R = TypeVar("R")

BATCH = 500
"""Maximum number of jobs in one commit, so that no acknowledgement waits for a long queue."""
CROWD = 64
"""Queue length from which callers that need not wait for their write should still wait."""

RESUMED_PER_TICK = 16
"""Number of waiters resumed in one turn of their event loop."""

Many = Callable[[sqlite3.Connection, Sequence[T]], Sequence[R]]
"""Function that writes items of one kind, and returns one result for each."""


@dataclass(frozen=True, slots=True)
class _Job:
    many: Many[Any, Any]
    item: Any
    done: "Future[Any] | asyncio.Future[Any] | None"
    """Future to settle; None if no caller waits for the job."""
    builds_on_rows: bool = False
    """True for a job that is cancelled if a row could not be written: a step must not close
    without one of its rows.
    """


def _plain(
    db: sqlite3.Connection, works: Sequence[Callable[[sqlite3.Connection], T]]
) -> Sequence[T]:
    return [work(db) for work in works]


class Writer:
    """The only connection that writes, in its own thread.

    Raises:
        StoreError: The file cannot be opened.
    """

    def __init__(self, path: Path, *, wait_s: float = WAIT_S) -> None:
        self.path, self._wait_s = path, wait_s
        with explained(path):
            # Opened in the caller's thread, so that the caller gets the
            # error of a file that cannot be opened.
            self._db = connect(path, wait_s=wait_s)
            self._files = Files(path, self._db)
        self._trouble: StoreError | None = None
        """Error that ends all writing, once it is set."""
        self._missed: BaseException | None = None
        """Error from a row that no caller waited for; kept, since the first caller to see it may
        be cancelled.
        """
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._door = threading.Lock()
        """Lock held while a job or the end is queued, so that no job can be queued after the end.
        """
        # A daemon thread: an unclosed store must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run `work(connection)` in a transaction; the future resolves after the commit.

        Earlier jobs are written first. `work` may run twice (if another job of its batch fails), so
        its only effects must be on the connection. If the caller stops waiting, the write happens
        anyway.

        Raises:
            StoreError: The writer is closed.
        """
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()  # from now on, cancelling the waiter cannot cancel it
        self._put(_Job(_plain, work, done))
        return done

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` and wait for the commit; raise instead if an earlier row was not written."""
        return await self._awaited(_plain, work, builds_on_rows=True)

    async def row(self, many: Many[T, R], item: T) -> R:
        """Commit the item with others of its kind; return the result of `many` for it.

        Jobs queued later by `submit` and `write` are written after it. As with `submit`, `many` may
        run twice, and the item is written even if the waiting caller is cancelled.
        """
        return await self._awaited(many, item)

    async def _awaited(self, many: Many[T, R], item: T, *, builds_on_rows: bool = False) -> R:
        import asyncio  # not above: a command that only reads has no use for it

        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._put(_Job(many, item, done, builds_on_rows))
        # No shield needed: the job is already queued, and `_settle_all`
        # skips a cancelled future.
        return await done

    async def row_soon(self, many: Many[T, Any], item: T) -> None:
        """Queue the item like `row`; wait only if many jobs are queued.

        If the item cannot be written, all callers that later wait for this writer get the error,
        and `close` raises it.
        """
        # Otherwise rows without a waiter could fill the memory faster than the disk takes them.
        if self._jobs.qsize() >= CROWD:
            await self.row(many, item)
        else:
            self._put(_Job(many, item, None))

    def _put(self, job: _Job) -> None:
        with self._door:
            if self._closed:
                raise StoreError(f"cannot write to the database {self.path}: it is closed")
            self._jobs.put(job)

    def close(self) -> None:
        """Commit everything submitted and end the thread.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed while it was waiting.
            StoreError: Committed data was lost, or may have been; or a row could not be written.
        """
        with self._door:
            self._closed = True
            self._jobs.put(None)
        interrupt: KeyboardInterrupt | None = None
        # Keep waiting after a Ctrl-C: leaving now would lose queued writes.
        while self._thread.is_alive():
            try:
                self._thread.join()
            except KeyboardInterrupt as e:
                interrupt = e
        if interrupt is not None:
            raise interrupt
        if self._trouble is not None:
            raise StoreError(str(self._trouble), hint=self._trouble.hint)
        if self._missed is not None:
            raise self._missed

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._commit(batch)
            # Check once more at the end, for a file that was removed after
            # the last commit.
            self._trouble = self._trouble or self._files.trouble()
        finally:
            self._db.close()

    def _next_batch(self) -> list[_Job] | None:
        """Return the queued jobs, at least one; None once the queue is closed."""
        first = self._jobs.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < BATCH:
            try:
                # Never wait for more jobs: a single row is committed without
                # delay, and a burst still shares one fsync.
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)  # close after this batch
                break
            batch.append(job)
        return batch

    def _commit(self, batch: list[_Job]) -> None:
        try:
            # If the file is gone, SQLite would still report a commit, which nobody could ever read.
            if self._trouble is not None:
                raise self._trouble
            if self._missed is not None and any(job.builds_on_rows for job in batch):
                raise self._missed
            with transaction(self._db):
                written = [
                    pair
                    for many, jobs in _groups(batch)
                    for pair in zip(jobs, many(self._db, [j.item for j in jobs]), strict=True)
                ]
        except BaseException as e:  # noqa: BLE001 - it belongs to whoever waits for the job
            if len(batch) > 1:
                for job in batch:  # one bad job must not take its neighbours down
                    self._commit([job])
            elif batch[0].done is None:
                self._missed = self._missed or self._explained(e)
            else:
                _settle_waiters([(batch[0], None, self._explained(e))])
            return
        # After each commit, before any future is settled: SQLite does
        # not notice that its file was removed.
        self._trouble = self._files.trouble()
        results = list[tuple[_Job, Any, BaseException | None]]()
        for job, result in written:
            # An earlier missed row fails all later asynchronous writes. Only blocking writes, which
            # record the end of the run, still succeed.
            missed = self._missed if job.done and not isinstance(job.done, Future) else None
            results.append((job, result, self._trouble or missed))
        _settle_waiters(results)

    def _explained(self, error: BaseException) -> BaseException:
        """Return the error for a caller; for a lock, name the processes that may hold it."""
        if not isinstance(error, Exception):
            return error
        if not (isinstance(error, sqlite3.OperationalError) and "locked" in str(error)):
            return explain(error, self.path)
        try:
            at_work = [who for who in invocations.holders(self._db) if who.may_live]
        except sqlite3.Error:
            # The lock that failed the job may fail this query, too.
            at_work = []
        others = [f"{who.run} ({who})" for who in at_work if who.pid != os.getpid()]
        named = f"; in use by: {', '.join(others)}" if others else ""
        return StoreError(
            f"the database {self.path} is still locked by another process after"
            f" {self._wait_s:g} s{named}",
            hint="wait for it to end, then run the command again",
        )


def _groups(batch: Sequence[_Job]) -> Iterator[tuple[Many[Any, Any], list[_Job]]]:
    """Yield jobs of one kind together; a plain job stays after all jobs queued before it."""
    kinds = dict[Many[Any, Any], list[_Job]]()
    for job in batch:
        # A plain job, such as closing a step, may build on earlier rows, so no row may overtake it.
        if job.many is _plain:
            yield from kinds.items()
            kinds = {}
            yield _plain, [job]
        else:
            kinds.setdefault(job.many, []).append(job)
    yield from kinds.items()


def _settle_waiters(results: Sequence[tuple[_Job, Any, BaseException | None]]) -> None:
    """Settle all futures of these jobs; wake each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, Any]]] = {}
    for job, result, error in results:
        if isinstance(job.done, Future):
            _settle(job.done, result, error)
        elif job.done is not None:
            loops.setdefault(job.done.get_loop(), []).append((job.done, result, error))
    for loop, waiting in loops.items():
        with suppress(RuntimeError):  # the loop is closed, so nobody is waiting
            loop.call_soon_threadsafe(_settle_all, loop, waiting)


def _settle_all(
    loop: "asyncio.AbstractEventLoop",
    waiting: "Sequence[tuple[asyncio.Future[Any], Any, BaseException | None]]",
) -> None:
    """Settle futures in order, a few in each turn of the event loop."""
    # Resuming a whole batch in one turn would delay every timer and reply of the loop.
    for done, result, error in waiting[:RESUMED_PER_TICK]:
        if not done.done():  # the waiter may have been cancelled
            _settle(done, result, error)
    if waiting[RESUMED_PER_TICK:]:
        loop.call_soon(_settle_all, loop, waiting[RESUMED_PER_TICK:])


def _settle(
    done: "Future[Any] | asyncio.Future[Any]", result: Any, error: BaseException | None
) -> None:
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


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
        # A new log belongs to another process, so writing our log into the database could damage
        # both.
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
