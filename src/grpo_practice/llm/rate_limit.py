"""Schedules requests so that they respect requested waits and configured rates.

Times are in seconds, on the clock of the running event loop.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from grpo_practice.llm.concurrency import Limit

Sleep = Callable[[float], Awaitable[None]]

SPREAD = 0.1
"""Share of a wait over which the waiting requests restart, so that they do not all start
together.
"""
BURST_S = 1.0
"""Number of seconds whose allowance may be used in one burst after idle time."""
LOOK_S = 1.0
"""Interval in seconds at which waiters check whether they may start earlier."""


def now() -> float:
    """Return the event loop's time."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class RateLimit:
    """The wait requested by one URL, shared by all its clients."""

    opens: float = 0.0
    """Time until which the server asked us to send nothing."""
    spread_s: float = 0.0
    """Seconds after reopening over which the waiting requests start."""

    def asked_to_wait(self, seconds: float) -> None:
        """Close the URL for that time; an earlier, longer wait remains in force."""
        self.spread_s = max(seconds, self.opens - now()) * SPREAD
        self.opens = max(self.opens, now() + seconds)

    def takes(self, at: float) -> bool:
        """Return True if a request may be sent at that time."""
        return self.opens <= max(at, now())

    async def opened(self, since: float, sleep: Sleep) -> float:
        """Wait until the URL is open, and return the time; callers are spread over a short period.

        Args:
            since: Earliest possible time for the caller: a caller that has slept until a time
                is past it, whatever the clock says.
            sleep: Waits for the given number of seconds.
        """
        while not self.takes(since):
            wait_s = self.opens - max(since, now())
            # Trust the sleep, not the clock: a clock that lags behind would make this loop
            # endless.
            since = self.opens
            await sleep(wait_s + random.uniform(0, self.spread_s))
        return max(since, now())


@dataclass(slots=True)
class _Meter:
    """An even rate per minute."""

    per_minute: int
    next: float = 0.0
    """Time at which the next request may start."""

    def take(self, amount: int) -> None:
        # Limit the credit, or an idle hour would allow a burst of an hour's requests.
        self.next = max(self.next, now() - BURST_S) + amount * 60 / self.per_minute


@dataclass(slots=True)
class Rate:
    """Limits of an endpoint for requests and tokens per minute; None means no limit."""

    requests: _Meter | None = None
    tokens: _Meter | None = None
    _door: Limit = field(default_factory=lambda: Limit(1))

    def cap(self, requests: int | None, tokens: int | None) -> None:
        """Limit both per minute; if an endpoint is given several caps, the lowest applies."""
        self.requests = _lower(self.requests, requests)
        self.tokens = _lower(self.tokens, tokens)

    async def turn(self, tokens: int, priority: int, sleep: Sleep) -> None:
        """Wait until a request with this number of tokens may start, and count it."""
        meters = [m for m in (self.requests, self.tokens) if m is not None]
        if not meters:
            return
        # One at a time, or all waiting requests would start at the same `next`.
        async with self._door.slot(priority):
            at = now()
            while (wait_s := max(meter.next for meter in meters) - at) > 0:
                # Check again after a while: requests in flight may use fewer tokens than
                # estimated.
                step_s = min(wait_s, LOOK_S)
                await sleep(step_s)
                # Add the sleep even if the clock stood still, so that the loop ends.
                at = max(now(), at + step_s)
            for meter, amount in ((self.requests, 1), (self.tokens, tokens)):
                if meter is not None:
                    meter.take(amount)

    def came_to(self, tokens: int, estimate: int) -> None:
        """Correct the count of a request that was estimated at `estimate` tokens."""
        if self.tokens is not None:
            self.tokens.take(tokens - estimate)


def _lower(meter: _Meter | None, per_minute: int | None) -> _Meter | None:
    if per_minute is None or (meter is not None and meter.per_minute <= per_minute):
        return meter
    # Keep `next`: a new cap must not let a burst through.
    return _Meter(per_minute, meter.next if meter else 0.0)
