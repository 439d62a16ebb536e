"""Start times of requests: not before a server allows it, and not faster than is configured.

Times are those of the running event loop, in seconds.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from grpo_practice.llm.concurrency import Limit

Sleep = Callable[[float], Awaitable[None]]

SPREAD = 0.1
"""Part of a wait over which those who waited start again, so that they do not all at once."""
BURST_S = 1.0
"""Seconds whose allowance may start at once after a quiet time."""
LOOK_S = 1.0
"""Interval at which waiters check whether they may start earlier."""


def now() -> float:
    """Return the event loop's time."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class RateLimit:
    """The state of one URL, shared by all its clients."""

    url: str
    opens: float = 0.0
    """Time before which it asked not to be sent anything."""
    spread_s: float = 0.0
    """Seconds after its opening over which those who waited start."""

    def asked_to_wait(self, seconds: float) -> None:
        """Close it for that long; an earlier, longer wait still holds."""
        self.spread_s = max(seconds, self.opens - now()) * SPREAD
        self.opens = max(self.opens, now() + seconds)

    def takes(self, at: float) -> bool:
        """Return True when a request may be sent there at that time."""
        return self.opens <= max(at, now())

    async def opened(self, since: float, sleep: Sleep) -> float:
        """Return the time once it is open; callers are spread over a little time.

        Args:
            since: Earliest time it can be for the caller: whoever has slept until a time is past
                it, whatever the clock says.
            sleep: Waits so many seconds.
        """
        while not self.takes(since):
            wait_s = self.opens - max(since, now())
            # Believed once slept: a clock that lags behind the sleep would make this loop for ever.
            since = self.opens
            await sleep(wait_s + random.uniform(0, self.spread_s))
        return max(since, now())


@dataclass(slots=True)
class _Meter:
    """An even rate of so much a minute."""

    per_minute: int
    next: float = 0.0
    """Time at which the next may start."""

    def take(self, amount: int) -> None:
        # An idle hour earns no burst of an hour's requests.
        self.next = max(self.next, now() - BURST_S) + amount * 60 / self.per_minute


@dataclass(slots=True)
class Rate:
    """The requests and tokens that an endpoint may be sent each minute; None means no limit."""

    requests: _Meter | None = None
    tokens: _Meter | None = None
    _door: Limit = field(default_factory=lambda: Limit(1))

    def cap(self, requests: int | None, tokens: int | None) -> None:
        """Limit both for each minute; of several caps on one endpoint, the lowest counts."""
        self.requests = _lower(self.requests, requests)
        self.tokens = _lower(self.tokens, tokens)

    async def turn(self, tokens: int, priority: int, sleep: Sleep) -> None:
        """Wait until one more request of so many tokens may start, and count it."""
        meters = [m for m in (self.requests, self.tokens) if m is not None]
        if not meters:
            return
        # One at a time: all who wait would otherwise start at the same `next`.
        async with self._door.slot(priority):
            at = now()
            while (wait_s := max(meter.next for meter in meters) - at) > 0:
                step_s = min(wait_s, LOOK_S)  # those in flight may come to less than estimated
                await sleep(step_s)
                # The sleep counts even where the clock stood still, so that the loop ends.
                at = max(now(), at + step_s)
            for meter, amount in ((self.requests, 1), (self.tokens, tokens)):
                if meter is not None:
                    meter.take(amount)

    def came_to(self, tokens: int, estimate: int) -> None:
        """Correct a request that was counted as `estimate` tokens."""
        if self.tokens is not None:
            self.tokens.take(tokens - estimate)


def _lower(meter: _Meter | None, per_minute: int | None) -> _Meter | None:
    if per_minute is None or (meter is not None and meter.per_minute <= per_minute):
        return meter
    return _Meter(per_minute, meter.next if meter else 0.0)


class Paces:
    """The state of the endpoints, shared by all clients of a command."""

    def __init__(self) -> None:
        self._addresses = dict[str, RateLimit]()
        self._rates = dict[str, Rate]()

    def address(self, url: str) -> RateLimit:
        """Return the state of that URL."""
        return self._addresses.setdefault(url, RateLimit(url))

    def rate(self, base_url: str) -> Rate:
        """Return the rate of that endpoint."""
        return self._rates.setdefault(base_url, Rate())
