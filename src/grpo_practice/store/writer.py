"""One thread writes: it commits whatever has queued since its last commit.

One commit per row, inline, would stall the event loop and do about 1,000 rows/s with
`synchronous=FULL`; batches do 25 times that, each acknowledged within milliseconds.
"""

import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from grpo_practice.errors import StoreError
from grpo_practice.store import runs
from grpo_practice.store.db import WAIT_S, connect, explain, explained, transaction
from grpo_practice.store.files import Files

T = TypeVar("T")

BATCH = 500
"""The most jobs in one commit, so that an acknowledgement never waits for a long queue."""


@dataclass(frozen=True, slots=True)
class _Job(Generic[T]):
    work: Callable[[sqlite3.Connection], T]
    done: Future[T]


class Writer:
    """The only connection that writes, in a thread of its own.

    Args:
        path: The database.
        wait_s: Longest wait for another process that is writing.

    Raises:
        StoreError: The file cannot be opened.
    """

    def __init__(self, path: Path, *, wait_s: float = WAIT_S) -> None:
        self.path, self._wait_s = path, wait_s
        with explained(path):
            self._db = connect(path, wait_s=wait_s)
            self._files = Files(path, self._db)
        self._trouble: StoreError | None = None
        """Once set, nothing is written any more."""
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._door = threading.Lock()
        """Held while a job or the end is queued, so that no job can queue behind the end."""
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """`work(connection)` runs inside a transaction; the future resolves once it is committed.

        `work` may run twice (when another job of its batch fails), so it must have no effect but
        on the connection. Whoever waits may give up waiting; the write happens all the same.

        Raises:
            StoreError: The writer is closed.
        """
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()  # from here on a cancelled waiter cannot cancel it
        with self._door:
            if self._closed:
                raise StoreError(f"cannot write to the database {self.path}: it is closed")
            self._jobs.put(_Job(work, done))
        return done

    def close(self) -> None:
        """Everything submitted is committed, and the thread has ended.

        Raises:
            KeyboardInterrupt: It came meanwhile.
            StoreError: What was committed is lost, or may be.
        """
        with self._door:
            self._closed = True
            self._jobs.put(None)
        interrupt: KeyboardInterrupt | None = None
        while self._thread.is_alive():
            try:
                self._thread.join()
            except KeyboardInterrupt as e:
                interrupt = e
        if interrupt is not None:
            raise interrupt
        if self._trouble is not None:
            raise StoreError(str(self._trouble), hint=self._trouble.hint)

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._commit(self._db, batch)
            self._trouble = self._trouble or self._files.trouble()
        finally:
            self._db.close()

    def _next_batch(self) -> list[_Job[Any]] | None:
        """The jobs that have queued, waiting for the first; None once the queue is closed."""
        first = self._jobs.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < BATCH:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)  # close after this batch
                break
            batch.append(job)
        return batch

    def _commit(self, db: sqlite3.Connection, batch: list[_Job[Any]]) -> None:
        try:
            if self._trouble is not None:
                raise self._trouble
            with transaction(db):
                results = [job.work(db) for job in batch]
        except BaseException as e:  # noqa: BLE001 - it belongs to whoever waits for the job
            if len(batch) == 1:
                batch[0].done.set_exception(self._explained(e))
                return
            for job in batch:  # one bad job must not take its neighbours down
                self._commit(db, [job])
            return
        self._trouble = self._files.trouble()
        for job, result in zip(batch, results, strict=True):
            if self._trouble is None:
                job.done.set_result(result)
            else:
                job.done.set_exception(self._trouble)

    def _explained(self, error: BaseException) -> BaseException:
        """As it is told; of a lock, with who may hold it."""
        if not isinstance(error, Exception):
            return error
        if not (isinstance(error, sqlite3.OperationalError) and "locked" in str(error)):
            return explain(error, self.path)
        try:
            at_work = [who for who in runs.holders(self._db) if who.may_live]
        except sqlite3.Error:
            at_work = []
        others = [f"{who.run} ({who})" for who in at_work if who.pid != os.getpid()]
        named = f"; at work on it: {', '.join(others)}" if others else ""
        return StoreError(
            f"the database {self.path} is locked by another process, still after"
            f" {self._wait_s:g} s{named}",
            hint="wait for it to end, then run the command again",
        )
