"""Which requests may still be sent: all within the caps, until the command is to stop."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from grpo_practice.calls import Usage
from grpo_practice.errors import GrpoPracticeError
from grpo_practice.llm.budget import NOTHING, Account, Amount, Ask
from grpo_practice.llm.rate_limit import Paces

GRACE_S = 5.0
"""Longest wait for the requests under way, once the command is to stop."""
ANY = Ask()
"""A try of which nothing is known but that it is one request."""


@dataclass(slots=True)
class Try:
    """A try that was let through. Once sent, it may have cost what was set aside for it."""

    account: Account
    ask: Ask
    estimate: Amount
    came_to: Amount = NOTHING

    def sent(self) -> None:
        """It is on its way; unless more becomes known, it came to the estimate."""
        self.came_to = self.estimate

    def answered(self, usage: Usage) -> None:
        """A reply came, with this usage."""
        self.came_to = self.account.answered(self.ask, usage, self.estimate)

    def refused(self) -> None:
        """No reply came, and none is being made: it was one request and nothing more."""
        self.came_to = Amount(requests=1)


class Admission:
    """The one door that every try of every request of a command goes through.

    A try is let through when all that was spent, all that is set aside for those under way, and
    what it may need itself stay within the caps. Otherwise it waits for those under way, which may
    come to less; when none is, it does not fit, and neither does anybody who waits.

    After `stop`, no further one is sent: whoever asks waits until it is cancelled, while those
    under way may end.
    """

    def __init__(self, account: Account | None = None) -> None:
        self.account = account or Account()
        self.paces = Paces()
        self._inside = 0
        self.stopped: GrpoPracticeError | None = None
        """Why no further request is sent."""
        self._finishing = set[asyncio.Task[Any] | None]()
        self._waiting: list[tuple[Amount, asyncio.Future[None]]] = []
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def enter(self, ask: Ask = ANY) -> AsyncIterator[Try]:
        """Be on record as under way for the block, which says what it came to.

        Raises:
            PausedError: It does not fit into a cap, and nothing is under way that could change
                that. What was sent before has ended.
        """
        if self.stopped is not None:
            self._finished()
            await asyncio.Event().wait()
        need = self.account.estimate(ask)
        await self._admitted(need)
        tried = Try(self.account, ask, need)
        try:
            yield tried
        finally:
            self._leave(need, tried.came_to)

    async def _admitted(self, need: Amount) -> None:
        """Counted as under way, `need` set aside."""
        if self.account.fits(need):
            return self._let_in(need)
        if not self._inside:
            raise self.account.paused(need)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((need, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave(need, NOTHING)  # it was let in before the cancellation arrived
            raise
        return None

    def _let_in(self, need: Amount) -> None:
        self.account.reserved += need
        self._inside += 1
        self._empty.clear()

    def _leave(self, need: Amount, came_to: Amount) -> None:
        """No longer under way; those who wait and fit now are let in."""
        self.account.reserved -= need
        self.account.spent += came_to
        self._inside -= 1
        self._look()
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
            for need_, turn in self._waiting:
                turn.set_exception(self.account.paused(need_))
            self._waiting = []

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """The block counts as under way, up to where it asks for a request that is not sent."""
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
        """How many requests are under way."""
        return self._inside

    def stop(self, reason: GrpoPracticeError) -> None:
        """No further request is sent, for that reason."""
        self.stopped = reason

    async def land(self, reason: GrpoPracticeError) -> None:
        """No further request is sent, for that reason, and those under way had time to end.

        Whoever ends a run waits for this first: it cancels its siblings, and what they wait for
        may be paid already.
        """
        if self.stopped is None:
            self.stop(reason)
        self._finished()  # whoever waits here does not wait for itself
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self.drained()

    async def drained(self) -> None:
        """Nothing is under way: no request, and no block that is finishing."""
        await self._empty.wait()
