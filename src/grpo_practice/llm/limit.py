"""How many requests are in flight at once, and who goes first."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

FIRST = 0
"""Priority of teacher and judge calls: finishing a group goes before starting one."""
STUDENT = 1
"""Priority of the calls that play new rollouts."""


class Limit:
    """At most `n` holders at once; of those that wait, the lowest priority number goes first.

    Within one priority the order is first come, first served. A waiter that is cancelled holds
    nothing and delays nobody.
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"a limit of {n} would let nothing through")
        self.n = n
        self._free = n
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._turn = count()

    @asynccontextmanager
    async def slot(self, priority: int = STUDENT) -> AsyncIterator[None]:
        """Hold one of the `n` slots for the block."""
        await self._take(priority)
        try:
            yield
        finally:
            self._give()

    async def _take(self, priority: int) -> None:
        if self._free:  # then nobody waits: a slot given back goes to a waiter first
            self._free -= 1
            return
        granted = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._turn), granted))
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # the slot was granted before the cancellation arrived
                self._give()
            raise

    def _give(self) -> None:
        while self._waiting:
            _, _, granted = heapq.heappop(self._waiting)
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1
