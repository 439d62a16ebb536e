"""The gate of all requests: sent within the caps, until the command is to stop."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from grpo_practice.calls import Usage
from grpo_practice.errors import GrpoPracticeError
from grpo_practice.events import Emit, silent
from grpo_practice.llm.budget import NOTHING, Account, Amount, Ask
from grpo_practice.llm.rate_limit import Paces

GRACE_S = 5.0
"""Longest wait for the requests in flight, once the command is to stop."""
ANY = Ask()
"""Default: one request, nothing else known."""


@dataclass(slots=True)
class Try:
    """A try that was admitted, and what it came to: once sent, by default the whole estimate."""

    account: Account
    ask: Ask
    estimate: Amount
    came_to: Amount = NOTHING

    def sent(self) -> None:
        """Count the estimate, until more is known."""
        self.came_to = self.estimate

    def answered(self, usage: Usage) -> None:
        """Count a reply's usage."""
        self.came_to = self.account.answered(self.ask, usage, self.estimate)

    def refused(self) -> None:
        """Count one request and nothing more: no reply is being made."""
        self.came_to = Amount(requests=1)


class Admission:
    """The gate that every try of every request of a command passes.

    A try is admitted when what was spent, what is reserved for the tries in flight, and what it may
    need itself stay within the caps. Otherwise it waits for those in flight, which may come to
    less; when none is, neither this one nor any other that waits fits.

    After `stop` no further try is sent: callers wait until they are cancelled, while the tries in
    flight may end.
    """

    def __init__(self, account: Account | None = None) -> None:
        self.account = account or Account()
        self.paces = Paces()
        self._inside = 0
        self.stopped: GrpoPracticeError | None = None
        """Reason why no further request is sent."""
        self._finishing = set[asyncio.Task[Any] | None]()
        self.emit: Emit = silent
        """Told of requests that wait for another try."""
        self._waiting: list[tuple[Amount, asyncio.Future[None]]] = []
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def enter(self, ask: Ask = ANY) -> AsyncIterator[Try]:
        """Count as in flight for the block, which notes on the `Try` what it came to.

        Raises:
            PausedError: A cap is too small for it, and nothing in flight could change that.
        """
        if self.stopped is not None:
            self._finished()
            await asyncio.Event().wait()  # for ever: the command is ending, and cancels its tasks
        need = self.account.estimate(ask)
        await self._admit(need)
        tried = Try(self.account, ask, need)
        try:
            yield tried
        finally:
            self._leave(need, tried.came_to)

    async def _admit(self, need: Amount) -> None:
        """Wait until `need` fits, and reserve it."""
        if self.account.fits(need):
            return self._let_in(need)
        if not self._inside:
            # Nothing in flight can come to less than was reserved: to wait would be for ever.
            raise self.account.paused(need)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((need, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # Admitted before the cancellation arrived: else the reservation would leak.
                self._leave(need, NOTHING)
            raise
        return None

    def _let_in(self, need: Amount) -> None:
        self.account.reserved += need
        self._inside += 1
        self._empty.clear()

    def _leave(self, need: Amount, came_to: Amount) -> None:
        """Release the reservation, and admit those who wait and fit now."""
        self.account.reserved -= need
        self.account.spent += came_to
        self._inside -= 1
        self._look()
        # Who waits is cancelled by the stop; to admit it would send a new request.
        if self.stopped is not None:
            return
        waiting = [(n, turn) for n, turn in self._waiting if not turn.done()]
        self._waiting = []
        for need_, turn in waiting:
            if self.account.fits(need_):
                self._let_in(need_)
                turn.set_result(None)
            else:
                self._waiting.append((need_, turn))
        if not self._inside:
            # None of them fits, and nothing is left that could make room.
            for need_, turn in self._waiting:
                turn.set_exception(self.account.paused(need_))
            self._waiting = []

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Count the block as in flight, until it asks for a request that is not sent."""
        self._finishing.add(asyncio.current_task())
        self._empty.clear()
        try:
            yield
        finally:
            self._finished()

    def _finished(self) -> None:
        self._finishing.discard(asyncio.current_task())
        self._look()

    def _look(self) -> None:
        if not (self._inside or self._finishing):
            self._empty.set()

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return self._inside

    def stop(self, reason: GrpoPracticeError) -> None:
        """Send no further request, for that reason."""
        self.stopped = reason

    async def land(self, reason: GrpoPracticeError) -> None:
        """Send no further request, for that reason, and give those in flight time to end.

        Call it before ending a run early: that cancels the siblings, whose replies may be paid.
        """
        # The first reason stays: the failures that a stop brings about are not its cause.
        if self.stopped is None:
            self.stop(reason)
        self._finished()  # whoever waits here does not wait for itself
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self.drained()

    async def drained(self) -> None:
        """Wait until nothing is in flight: no request, and no block that is finishing."""
        await self._empty.wait()
