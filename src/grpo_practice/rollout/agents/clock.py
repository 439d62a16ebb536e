"""Measures a rollout's own time, which excludes waits."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Clock:
    """A stopwatch for a program's own time, which starts immediately.

    The clock is paused while requests are in flight. Each request then adds the duration of its
    response; a stored response adds the time it originally took. Simultaneous requests count once.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._own, self._since = 0.0, monotonic()
        self._asking = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def left_s(self) -> float:
        """Seconds left until the limit; negative once the limit is exceeded."""
        running = 0.0 if self._asking else monotonic() - self._since
        return self.limit_s - self._own - running

    @property
    def own_s(self) -> float:
        """Seconds so far; negative if a stored response took longer than the elapsed time."""
        return self.limit_s - self.left_s

    @contextmanager
    def asking(self) -> Iterator[Callable[[float], None]]:
        """Pause the clock during a request; the request may report its own duration in seconds."""
        start = self._own = self.limit_s - self.left_s
        self._asking += 1
        self._idle.clear()
        took = [0.0]
        try:
            yield took.append
        finally:
            # Use the maximum, not the sum: concurrent requests share their time.
            self._own = max(self._own, start + took[-1])
            self._asking -= 1
            if not self._asking:
                self._since = monotonic()
                self._idle.set()

    async def over(self) -> None:
        """Wait until the limit is reached."""
        while True:
            await self._idle.wait()
            if (left_s := self.left_s) <= 0:
                return
            # Check again afterwards: requests may have paused the clock in the meantime.
            await asyncio.sleep(left_s)
