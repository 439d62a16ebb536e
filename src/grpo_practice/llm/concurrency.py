"""Concurrency limit of an endpoint: a window of requests in flight, granted by priority."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

FIRST = 0
"""Priority of teacher and judge calls: groups are finished before others are started."""
STUDENT = 1
"""Priority of the calls that play new rollouts."""
LATER = 2
"""Priority of the calls that play rollouts of the next step."""

START = 16
"""Initial window: a rejected key costs no more than this number of requests."""
GROWTH_S = 0.5
"""Seconds between two doublings of a window that was never cut."""
ADMITTED_PER_TICK = 32
"""Maximum number of requests admitted in one turn of the event loop, so that other tasks get
theirs.
"""
PROOF = 8
"""Number of requests that must return before a window that was cut grows by one."""


class Limit:
    """A window of slots, granted by lowest priority number, then first come, first served.

    A cancelled waiter holds no slot and delays nobody.

    The window discovers how many requests the endpoint takes. While requests are waiting, it
    doubles every `GROWTH_S`, up to `n`, until the server says "too many" and `cut` halves it. The
    capacity is then between half of the previous window and all of it, so the window grows by one
    whenever `PROOF` requests have returned: a slow or small server is rarely overloaded, and then
    by only one request, while a fast one that says "too many" without reason is not slowed down for
    long. Without waiters, the window is not tested and stays the same.
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"a limit of {n} would let nothing through")
        self.n = n
        self.window = min(START, n)
        self.held = 0
        self.cuts = 0
        """Number of times the window was cut."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._turn = count()
        self._growth: asyncio.TimerHandle | None = None
        self._more: asyncio.Handle | None = None
        self._back = 0
        """Number of slots returned since the window last changed."""

    @asynccontextmanager
    async def slot(self, priority: int = STUDENT) -> AsyncIterator[None]:
        """Hold one of the slots while the block runs."""
        await self._take(priority)
        try:
            yield
        finally:
            self._give()

    def lower(self, n: int) -> None:
        """Lower the maximum to `n`; requests already in flight keep their slots."""
        self.n = min(self.n, n)
        self.window = min(self.window, self.n)

    def cut(self, cuts: int) -> None:
        """Halve the window after the server said "too many"; it stays at least one.

        Args:
            cuts: Value of `cuts` when the rejected request was sent. Requests sent before the
                last cut reveal nothing about the present window, so one wave cuts only once.
        """
        if cuts != self.cuts:
            return
        self.cuts += 1
        # Round up, so that the window never reaches 0, from which it could not grow.
        self.window = (self.window + 1) // 2
        # Requests in flight prove nothing about the new window.
        self._back = -self.held
        if self._growth is not None:
            # A pending doubling would undo the cut.
            self._growth.cancel()
            self._growth = None
        self._let_in()

    async def _take(self, priority: int) -> None:
        # Do not overtake waiting requests even if a slot is free: the window may have just
        # grown.
        if self.held < self.window and not self._waiting:
            self.held += 1
            return
        granted = asyncio.get_running_loop().create_future()
        # The turn keeps equal priorities in order and stops heapq from comparing futures.
        heapq.heappush(self._waiting, (priority, next(self._turn), granted))
        self._let_in()
        try:
            await granted
        except asyncio.CancelledError:
            # Granted before the cancellation arrived: without this, the slot would leak.
            if not granted.cancelled():
                self._give()
            raise

    def _give(self) -> None:
        self.held -= 1
        self._back += 1
        if self.cuts and self._waiting and self._back >= PROOF and self.window < self.n:
            self.window, self._back = self.window + 1, 0
        self._let_in()

    def _let_in(self) -> None:
        """Grant the free slots; if requests are still waiting, let the window grow."""
        last = self.held + ADMITTED_PER_TICK
        while self._waiting:
            _, _, first = self._waiting[0]
            # Cancelled while waiting: a heap can remove only its first item.
            if first.done():
                heapq.heappop(self._waiting)
            elif self.held < min(self.window, last):
                heapq.heappop(self._waiting)
                self.held += 1
                first.set_result(None)
            else:
                break
        if self._waiting and self.held < self.window:
            if self._more is None:
                self._more = asyncio.get_running_loop().call_soon(self._let_more_in)
            return
        growing = not self.cuts and self._growth is None and self.window < self.n
        if self._waiting and growing:
            self._growth = asyncio.get_running_loop().call_later(GROWTH_S, self._grow)

    def _let_more_in(self) -> None:
        self._more = None
        self._let_in()

    def _grow(self) -> None:
        self._growth = None
        self.window = min(self.n, 2 * self.window)
        self._let_in()
