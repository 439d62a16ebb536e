"""Wait for the work of a command, with orderly stops, even inside a running event loop."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from types import FrameType
from typing import Any, TypeVar

from grpo_practice.core.errors import StoppedError, StoreError
from grpo_practice.llm.admission import GRACE_S
from grpo_practice.run.session import Session

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEAVE_S = 3.0
"""Maximum wait for cancelled tasks to end, after which the process exits without them."""
_TURNS = 5
"""Number of write batches after the last reply, to commit, score and store it and close a step."""


def run_until_stopped(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, even if a signal arrived too late to matter.

    After the first signal, no request is sent. Requests in flight have `GRACE_S` to finish. Any
    results that follow from their replies without another request are stored; then everything is
    cancelled. A second signal cancels immediately. Rows that are queued for the database are
    written in any case. With `Session.step_stop`, the first signal only requests a stop after the
    current step.

    If an event loop is already running, as in a notebook, the work runs in a thread with its own
    loop. Signals reach the main thread only; in any other thread, the work runs to its end.

    Raises:
        StoppedError: A signal stopped the work.
    """
    stop = _Stop(session)
    with stop.listening(), rare_collections():
        return run_blocking(stop.over(work))


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely while the block runs, because open requests hold most objects."""
    before = gc.get_threshold()
    # Freeze imported objects, because collecting them repeatedly stalls the loop. They are
    # not unfrozen afterwards, since the program's exit would then collect them once more.
    gc.freeze()
    gc.set_threshold(700, 10, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Stop:
    """Signal handler for the current work."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._came = list[int]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._patience: threading.Timer | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Receive signals while the block runs, except signals ignored since the program began."""
        ours = dict[int, Any]()
        if (
            threading.current_thread() is threading.main_thread()
        ):  # only this thread may set handlers
            before = {n: signal.getsignal(n) for n in SIGNALS}
            # Signals ignored at the start, such as SIGHUP under nohup, stay ignored.
            ours = {n: how for n, how in before.items() if how is not signal.SIG_IGN}
        for number in ours:
            signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number, how in ours.items():
                signal.signal(number, how)
            if self._patience is not None:
                self._patience.cancel()

    async def over(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work so that a stop cancels it."""
        self._loop = asyncio.get_running_loop()
        task: asyncio.Task[T] = asyncio.create_task(work)
        self._task = task
        # A signal may have arrived before the loop existed.
        if self._came and self._session.step_stop is None:
            self._begin()
        try:
            return await task
        except asyncio.CancelledError:
            if not self._came:
                raise
            raise self._session.admission.stopped or KeyboardInterrupt from None
        finally:
            if self._ending is not None:
                self._ending.cancel()

    def _receive(self, number: int, _: FrameType | None) -> None:
        """Stop through the event loop, or exit immediately if the loop is stuck."""
        self._came.append(number)
        if self._patience is not None:
            self._patience.cancel()
        first = len(self._came) == 1
        if first and self._session.step_stop is not None:
            self._session.step_stop.signal = number
            if self._loop is not None:
                text = f"stopping after this step; {self._again()}"
                self._loop.call_soon_threadsafe(self._session.notice, text)
            return
        # Use a thread, because a stuck loop could not end the process.
        self._patience = threading.Timer(LEAVE_S + (GRACE_S if first else 0), self._leave)
        self._patience.daemon = True
        self._patience.start()
        if self._loop is not None:
            # Leave the work to the loop, because a handler runs between any two bytecodes, and the
            # loop may be asleep.
            self._loop.call_soon_threadsafe(self._begin if first else self._cancel)

    def _begin(self) -> None:
        if self._ending is not None:  # an early signal is also handled in over()
            return
        admission = self._session.admission
        admission.stop(StoppedError(self._came[0]))
        n = admission.in_flight
        wait = f"waiting up to {GRACE_S:g} s for {n} request{'' if n == 1 else 's'}; " if n else ""
        self._session.notice(f"stopping: {wait}{self._again()}")
        self._ending = asyncio.create_task(self._end())

    def _again(self) -> str:
        """Return a sentence that tells the sender of the first signal how to leave immediately."""
        again = "Ctrl-C again" if self._came[0] == signal.SIGINT else "a second signal"
        return f"{again} to leave now"

    async def _end(self) -> None:
        with suppress(TimeoutError, StoreError):  # closing the store reports its error
            async with asyncio.timeout(GRACE_S):
                for _ in range(_TURNS):
                    await self._session.admission.drained()
                    await self._session.store.flushed()
        self._cancel()

    def _cancel(self) -> None:
        reason, left = self._session.admission.stopped, self._session.admission.in_flight
        if isinstance(reason, StoppedError):
            reason.unanswered = left
            reason.batches = [*self._session.admission.under_way.values()]
        if self._task is not None:
            self._task.cancel()

    def _leave(self) -> None:
        """Exit without the loop, which is blocked or waits for a task that cannot be cancelled."""
        stored = "all answers so far are stored"
        try:
            self._session.store.flush()
        except StoreError as e:
            stored = str(e)
        # Not print(), because a stuck thread may hold the stream's lock.
        os.write(2, f"stopped without waiting for tasks that hang; {stored}\n".encode())
        # Not sys.exit(), which would end only this thread.
        os._exit(128 + self._came[0])


_LOOK_S = 0.5
"""Maximum time in seconds before a signal takes effect."""


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work; inside a running loop, run it in a thread with its own loop.

    An interrupt cancels the work and waits for it to end.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    begun = Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]]()

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    with ThreadPoolExecutor(1) as thread:
        # Pass on the caller's context variables, since a new thread starts without any.
        result = thread.submit(copy_context().run, asyncio.run, main())
        try:
            # Wait with a timeout, because a signal that arrives just before the wait does not end
            # it.
            while not wait([result], _LOOK_S).done:
                pass
            return result.result()
        except KeyboardInterrupt:
            # Ctrl-C reaches only the main thread; leaving the block waits for the other thread.
            loop, task = begun.result()
            with suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(task.cancel)
            raise
