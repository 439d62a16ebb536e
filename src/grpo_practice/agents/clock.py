"""The time of a rollout: its own, not what it waits for."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Clock:
    """A stopwatch of a program's own time, beginning now.

    The clock stands still while requests are in flight. Each then adds the seconds of its answer;
    a stored answer adds the seconds it once took. Simultaneous requests count once.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._own, self._since = 0.0, monotonic()
        self._asking = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def left_s(self) -> float:
        """Seconds until the limit; negative beyond it."""
        running = 0.0 if self._asking else monotonic() - self._since
        return self.limit_s - self._own - running

    @property
    def own_s(self) -> float:
        """Seconds so far; below 0 there are none, of a stored answer that took longer."""
        return self.limit_s - self.left_s

    @contextmanager
    def asking(self) -> Iterator[Callable[[float], None]]:
        """Stop the clock for the block, a request, which may say how many seconds it took."""
        start = self._own = self.limit_s - self.left_s
        self._asking += 1
        self._idle.clear()
        took = [0.0]
        try:
            yield took.append
        finally:
            # The largest, not the sum: requests made at once share their time.
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
            # Looked at again afterwards: requests may have stopped the clock meanwhile.
            await asyncio.sleep(left_s)
