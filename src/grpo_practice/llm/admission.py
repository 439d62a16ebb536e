"""Gate for all requests: keeps spending within the caps and holds requests back during a stop."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.calls import Usage
from grpo_practice.core.errors import GrpoPracticeError, UnderWay
from grpo_practice.core.events import Emit, silent
from grpo_practice.llm.budget import NOTHING, Account, Amount, Ask
from grpo_practice.llm.line import Line
from grpo_practice.llm.rate_limit import Rate, RateLimit

GRACE_S = 5.0
"""Maximum wait, in seconds, for the requests in flight when the command is stopping."""
ANY = Ask()
"""Default request, about which nothing else is known."""


@dataclass(slots=True)
class Try:
    """An admitted try and its cost: once it is sent, the full estimate until the cost is known."""

    account: Account
    ask: Ask
    estimate: Amount
    came_to: Amount = NOTHING

    def sent(self) -> None:
        """Count the estimate as spent until the actual usage is known."""
        self.came_to = self.estimate

    def answered(self, usage: Usage) -> None:
        """Count the usage of a reply."""
        self.came_to = self.account.answered(self.ask, usage, self.estimate)

    def refused(self) -> None:
        """Count one request and nothing else: no reply is being generated."""
        self.came_to = Amount(requests=1)


class Admission:
    """The gate that every try of every request of a command passes.

    A try is admitted if the amount spent, the amount reserved for the tries in flight, and its own
    estimate together stay within the caps. Otherwise it waits for those in flight, which may cost
    less than reserved. If there are no tries in flight, nothing can free any budget, and the try
    fails.

    After `stop`, no further try is sent: callers wait until they are cancelled, while the tries in
    flight may finish.
    """

    def __init__(self, account: Account | None = None) -> None:
        self.account = account or Account()
        # Here, since all clients of a command share them: a second client of the same URL must
        # observe the wait that the first one was asked for.
        self.waits = defaultdict[str, RateLimit](RateLimit)
        """URL → wait that it requested."""
        self.lines = defaultdict[str, Line](Line)
        """URL → streamed requests that wait for their answers."""
        self.rates = defaultdict[str, Rate](Rate)
        """`base_url` → limits per minute of that endpoint."""
        self.under_way = dict[str, UnderWay]()
        """Name of each batch under way → the batch."""
        self._inside = self._in_batches = self._working = 0
        self.stopped: GrpoPracticeError | None = None
        """Reason why no further request is sent."""
        self._finishing = set[asyncio.Task[Any] | None]()
        self.emit: Emit = silent
        """Receives an event for each request that waits for another try."""
        self._waiting: list[tuple[Amount, asyncio.Future[None]]] = []
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def enter(
        self, ask: Ask = ANY, *, in_batch: bool = False, is_sent: bool = False
    ) -> AsyncIterator[Try]:
        """Hold a reservation while the block runs; the block records the actual cost on the `Try`.

        A stop does not wait for a request `in_batch`, whose reply is not lost. No cap holds back a
        request that `is_sent` already.

        Raises:
            PausedError: The request exceeds a cap, and no request in flight could change that.
        """
        if self.stopped is not None:
            self._finished()
            # Wait until cancelled: the command is ending and will cancel its tasks.
            await asyncio.Event().wait()
        need = self.account.estimate(ask)
        if is_sent:
            self._let_in(need)
        else:
            await self._admit(need)
        tried = Try(self.account, ask, need)
        self._in_batches += in_batch
        if in_batch:
            self._finished()
        try:
            yield tried
        finally:
            self._in_batches -= in_batch
            self._leave(need, tried.came_to)

    async def _admit(self, need: Amount) -> None:
        """Wait until `need` fits within the caps, and reserve it."""
        if self.account.fits(need):
            return self._let_in(need)
        if not self._inside:
            # Nothing in flight can turn out cheaper than reserved, so the wait would never end.
            raise self.account.paused(need)
        # It may wait for a batch, which is sent once nothing else is under way.
        self._finished()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((need, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # It was admitted before the cancellation arrived; without this, the reservation
                # would leak.
                self._leave(need, NOTHING)
            raise
        return None

    def _let_in(self, need: Amount) -> None:
        self.account.reserved += need
        self._inside += 1
        self._empty.clear()

    def _leave(self, need: Amount, came_to: Amount) -> None:
        """Release the reservation and admit the waiting tries that now fit."""
        self.account.reserved -= need
        self.account.spent += came_to
        self._inside -= 1
        self._note_if_empty()
        # The stop cancels the waiting tries; admitting one would send a new request.
        if self.stopped is not None:
            return
        waiting = [(n, turn) for n, turn in self._waiting if not turn.done()]
        self._waiting = []
        # Try all of them, not only the first: a small request may fit where a large one does not.
        for need_, turn in waiting:
            if self.account.fits(need_):
                self._let_in(need_)
                turn.set_result(None)
            else:
                self._waiting.append((need_, turn))
        if not self._inside:
            # None of them fits, and nothing in flight can free any budget.
            for need_, turn in self._waiting:
                turn.set_exception(self.account.paused(need_))
            self._waiting = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the block as leading to another request soon; a stop does not wait for it."""
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Count the block as in flight, until it makes a request that is not sent."""
        # By task, so that `drain`, called inside such a block, can take its own caller out.
        self._finishing.add(asyncio.current_task())
        self._empty.clear()
        try:
            yield
        finally:
            self._finished()

    def _finished(self) -> None:
        self._finishing.discard(asyncio.current_task())
        self._note_if_empty()

    def _note_if_empty(self) -> None:
        if not (self.in_flight or self._finishing):
            self._empty.set()

    @property
    def in_flight(self) -> int:
        """Number of requests in flight, without those in batches."""
        return self._inside - self._in_batches

    @property
    def held_back(self) -> int:
        """Number of requests that do not fit within the caps yet."""
        return len(self._waiting)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way that could lead to another request soon.

        A request that waits for the caps may wait for a batch, which has to be sent then.
        """
        return self._empty.is_set() and (not self._working or bool(self._waiting))

    def stop(self, reason: GrpoPracticeError) -> None:
        """Send no further requests, for this reason."""
        self.stopped = reason

    async def drain(self, reason: GrpoPracticeError) -> None:
        """Stop sending requests, and give those in flight time to finish.

        Call this before ending a run early: the end cancels the other tasks, whose replies may be
        billed.
        """
        # Keep the first reason: failures caused by the stop are not its cause.
        if self.stopped is None:
            self.stop(reason)
        # The caller must not wait for itself.
        self._finished()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self.drained()

    async def drained(self) -> None:
        """Wait until no request is in flight and no `finishing` block is running."""
        await self._empty.wait()
