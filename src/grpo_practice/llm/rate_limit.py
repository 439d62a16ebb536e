"""Start times of requests: not before a server allows it, and not faster than is configured.

Times are those of the running event loop, in seconds.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from grpo_practice.llm.concurrency import Limit

Sleep = Callable[[float], Awaitable[None]]

LONGEST_OUT_S = 60.0
"""Longest time for which an address without a usable answer is skipped."""
SPREAD = 0.1
"""Part of a wait over which those who waited start again, so that they do not all at once."""
BURST_S = 1.0
"""Seconds whose allowance may start at once after a quiet time."""
LOOK_S = 1.0
"""Interval at which waiters check whether they may start earlier."""


def now() -> float:
    """Return the event loop's time."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True, eq=False)
class RateLimit:
    """The state of one URL, shared by all its clients."""

    url: str
    asked_until: float = 0.0
    """Time before which it asked not to be sent anything."""
    out_until: float = 0.0
    """Time before which it is not tried again, since it gave no answer."""
    spread_s: float = 0.0
    """Seconds after its opening over which those who waited start."""
    outs: int = 0
    """Number of times it was put out."""
    told: bool = False
    """Whether a person was told that it is skipped."""
    _misses: int = 0
    """Number of times it was put out since its last usable answer."""
    _trials: int = 0
    """Requests in flight that were sent while it was in doubt."""

    @property
    def opens(self) -> float:
        """Time at which the next request to it may start."""
        return max(self.asked_until, self.out_until)

    def asked_to_wait(self, seconds: float) -> None:
        """Close it for that long; an earlier, longer wait still holds."""
        self.spread_s = max(seconds, self.opens - now()) * SPREAD
        self.asked_until = max(self.asked_until, now() + seconds)

    @property
    def on_trial(self) -> bool:
        """True while a request finds out whether it is back."""
        return self._misses > 0 and self._trials > 0

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Count a request for the block: a trial, if no answer came since it was put out."""
        trial = int(self._misses > 0)
        self._trials += trial
        try:
            yield
        finally:
            self._trials -= trial

    def put_out(self, outs: int) -> None:
        """Skip it for a while, longer each time until it gives an answer.

        Args:
            outs: Value of `outs` when the request was sent. Requests sent before it was last put
                out say nothing about it since, so that one wave puts it out once.
        """
        if outs != self.outs:
            return
        self.outs += 1
        self._misses += 1
        # The inner min: 2.0**1024 overflows, and a server may stay down for longer.
        seconds = min(LONGEST_OUT_S, 0.5 * 2.0 ** min(self._misses, 10))
        self.spread_s = max(seconds, self.opens - now()) * SPREAD
        self.out_until = now() + seconds

    def answered(self) -> None:
        """Note a usable answer from there."""
        # asked_until stays: an answer under way takes back no wait that the server asked for.
        self._misses, self.out_until = 0, 0.0


@dataclass(slots=True)
class Route:
    """Round-robin over an endpoint's replicas, skipping closed ones."""

    addresses: Sequence[RateLimit]
    sleep: Sleep = asyncio.sleep

    async def opened(self, since: float) -> float:
        """Return the time once one of them is open; callers are spread over a little time.

        Args:
            since: Earliest time it can be for the caller: whoever has slept until a time is past
                it, whatever the clock says.
        """
        while True:
            at = max(since, now())
            first = min(self.addresses, key=lambda address: address.opens)
            if first.opens <= at:
                return at
            # Believed once slept: a clock that lags behind the sleep would make this loop for ever.
            since = first.opens
            await self.sleep(first.opens - at + random.uniform(0, first.spread_s))

    def pick(self, turn: int, at: float) -> RateLimit | None:
        """Return the first open one, counting from `turn`; None when all are closed."""
        n, ready = len(self.addresses), self._ready(at)
        around = (self.addresses[(turn + i) % n] for i in range(n))
        return next((address for address in around if address in ready), None)

    def takes(self, address: RateLimit, at: float) -> bool:
        """Return True when one more request may be sent there at that time."""
        return address in self._ready(at)

    def _ready(self, at: float) -> list[RateLimit]:
        """Return the open ones; where there is a choice, one on trial is left to its trial."""
        ready = [address for address in self.addresses if address.opens <= max(at, now())]
        # If all are on trial, one of them all the same: nobody else could answer.
        return [address for address in ready if not address.on_trial] or ready

    def put_out(self, address: RateLimit, outs: int) -> bool:
        """Skip an address for a while, if there is another.

        Returns:
            Whether a person should be told: once for each address, while another is open.
        """
        if len(self.addresses) == 1:
            return False
        address.put_out(outs)
        new = not address.told and any(other.opens <= now() for other in self.addresses)
        address.told |= new
        return new


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
        self._rates = dict[tuple[str, ...], Rate]()

    def address(self, url: str) -> RateLimit:
        """Return the state of that URL."""
        return self._addresses.setdefault(url, RateLimit(url))

    def rate(self, base_urls: tuple[str, ...]) -> Rate:
        """Return the rate of that endpoint."""
        return self._rates.setdefault(base_urls, Rate())
