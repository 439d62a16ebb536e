"""Runs a command's coroutine so that a signal ends it in order, and a second one at once."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from grpo_practice.app.session import Session
from grpo_practice.errors import StoppedError, StoreError
from grpo_practice.events import Notice
from grpo_practice.llm.admission import GRACE_S

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEAVE_S = 3.0
"""Longest wait for tasks to end once they are cancelled; then the process ends without them."""
_TURNS = 5
"""Writes after the last reply: it is committed, scored, stored, and may close a step."""


def drive(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """What the work returns, also where a signal came too late to matter.

    After the first signal no request is sent. Those under way have `GRACE_S` to end, and what
    their replies lead to without another request is stored; then everything is cancelled. A
    second signal cancels at once. What has queued for the database is written in any case.

    Raises:
        StoppedError: A signal ended it.
    """
    gc.freeze()  # what is imported stays: looking through it all again and again stalls the loop
    gc.set_threshold(700, 10, 100)  # nor often through all that is in flight: nearly none is waste
    with asyncio.Runner() as runner:
        stop = _Stop(session, runner.get_loop())
        with stop.listening():
            try:
                return runner.run(stop.over(work))
            except asyncio.CancelledError:
                raise session.admission.stopped or KeyboardInterrupt from None


class _Stop:
    """What signals do to the work under way."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._session, self._loop = session, loop
        self._came = list[int]()
        self._task: asyncio.Task[Any] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._patience: threading.Timer | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals come here for the block, but for those the process was started to ignore."""
        before = {n: signal.getsignal(n) for n in SIGNALS}
        ours = [n for n in SIGNALS if before[n] is not signal.SIG_IGN]
        for number in ours:
            signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number in ours:
                signal.signal(number, before[number])
            if self._patience is not None:
                self._patience.cancel()

    async def over(self, work: Coroutine[Any, Any, T]) -> T:
        """Be responsible for the work until it ends."""
        task: asyncio.Task[T] = asyncio.create_task(work)
        self._task = task
        try:
            return await task
        finally:
            if self._ending is not None:
                self._ending.cancel()

    def _receive(self, number: int, _: FrameType | None) -> None:
        """A signal; the loop acts on it, unless it does not come to it in time."""
        self._came.append(number)
        if self._patience is not None:
            self._patience.cancel()
        first = len(self._came) == 1
        self._patience = threading.Timer(LEAVE_S + (GRACE_S if first else 0), self._leave)
        self._patience.daemon = True
        self._patience.start()
        self._loop.call_soon_threadsafe(self._begin if first else self._cancel)

    def _begin(self) -> None:
        admission = self._session.admission
        admission.stop(StoppedError(self._came[0]))
        n = admission.in_flight
        wait = f"waiting up to {GRACE_S:g} s for {n} request{'' if n == 1 else 's'}; " if n else ""
        self._session.emit(Notice(f"stopping: {wait}Ctrl-C again to leave now"))
        self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        with suppress(TimeoutError, StoreError):  # the store's own error is told as it is closed
            async with asyncio.timeout(GRACE_S):
                for _ in range(_TURNS):
                    await self._session.admission.drained()
                    await self._session.store.flushed()
        self._cancel()

    def _cancel(self) -> None:
        reason, left = self._session.admission.stopped, self._session.admission.in_flight
        if isinstance(reason, StoppedError):
            reason.unanswered = left
        if self._task is not None:
            self._task.cancel()

    def _leave(self) -> None:
        """The loop is blocked, or a task does not let itself be cancelled: end without them."""
        stored = "all that was answered is stored"
        try:
            self._session.store.flush()
        except StoreError as e:
            stored = str(e)
        os.write(2, f"stopped without waiting for what hangs; {stored}\n".encode())
        os._exit(128 + self._came[0])
