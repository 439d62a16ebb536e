"""Concurrency limit of an endpoint: a window of requests in flight, by priority."""

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
"""First window: a refused key costs no more than these requests."""
GROWTH_S = 0.5
"""Seconds between two doublings of a window that was never cut."""
AT_ONCE = 32
"""Number admitted in one turn of the event loop, so that nothing else waits for all of them."""
PROOF = 8
"""Number of requests that come back before a window that was cut grows by one."""


class Limit:
    """A window of slots, granted by lowest priority number, then first come, first served.

    A waiter that is cancelled holds nothing and delays nobody.

    The window finds out how much the endpoint takes, and doubles every `GROWTH_S` while somebody
    waits, up to `n`, until a server says "too many" and `cut` halves it. The capacity then lies
    between the half and the whole, so it grows by one, once `PROOF` requests have come back: a
    slow or small server is overstepped rarely and by one request, and a fast one that says "too
    many" for no reason is not held down. Without waiters the window is not tested and stays.
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
        """Number of slots given back since the window last changed."""

    @asynccontextmanager
    async def slot(self, priority: int = STUDENT) -> AsyncIterator[None]:
        """Hold one of the slots for the block."""
        await self._take(priority)
        try:
            yield
        finally:
            self._give()

    def lower(self, n: int) -> None:
        """Let no more than `n` in at once; who is in already stays."""
        self.n = min(self.n, n)
        self.window = min(self.window, self.n)

    def cut(self, cuts: int) -> None:
        """Halve the window, after a server said "too many"; never below one.

        Args:
            cuts: Value of `cuts` when the rejected request was sent. Requests sent before the last
                cut say nothing about the window since, so that one wave cuts once.
        """
        if cuts != self.cuts:
            return
        self.cuts += 1
        # Rounded up, so that it never reaches 0, which nothing could raise again.
        self.window = (self.window + 1) // 2
        self._back = -self.held  # those in flight prove nothing about the new window
        if self._growth is not None:
            # A doubling that is due would undo the cut.
            self._growth.cancel()
            self._growth = None
        self._let_in()

    async def _take(self, priority: int) -> None:
        # Not past those who wait, whatever is free: the window may have grown a moment ago.
        if self.held < self.window and not self._waiting:
            self.held += 1
            return
        granted = asyncio.get_running_loop().create_future()
        # The turn keeps equal priorities in order, and heapq from comparing futures.
        heapq.heappush(self._waiting, (priority, next(self._turn), granted))
        self._let_in()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # granted before the cancellation arrived: else it leaks
                self._give()
            raise

    def _give(self) -> None:
        self.held -= 1
        self._back += 1
        if self.cuts and self._waiting and self._back >= PROOF and self.window < self.n:
            self.window, self._back = self.window + 1, 0
        self._let_in()

    def _let_in(self) -> None:
        """Grant the free slots; while somebody is left waiting, let the window grow."""
        last = self.held + AT_ONCE
        while self._waiting:
            _, _, first = self._waiting[0]
            # Cancelled while it waited: a heap gives up its first item only.
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
