"""When the next request may start: not before a server said, and not faster than is allowed.

All times are those of the running event loop, in seconds.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from grpo_practice.llm.concurrency import Limit

Sleep = Callable[[float], Awaitable[None]]

LONGEST_OUT_S = 60.0
"""The longest that an address without a usable answer is passed over before it is tried again."""
SPREAD = 0.1
"""The part of a wait within which those who waited start again, so that they do not all at once."""
BURST_S = 1.0
"""What a rate allows in so many seconds may start at once after a quiet time."""
LOOK_S = 1.0
"""How often one who waits for its turn looks whether it may go earlier."""


def now() -> float:
    """The event loop's time."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True, eq=False)
class RateLimit:
    """One URL, as all who ask it know it."""

    url: str
    asked_until: float = 0.0
    """It asked not to be sent anything before then."""
    out_until: float = 0.0
    """It gave no answer, and is not tried again before then."""
    spread_s: float = 0.0
    """The time after its opening within which those who waited start."""
    outs: int = 0
    """How often it was put out."""
    told: bool = False
    """A person was told that it is passed over."""
    _misses: int = 0
    """How often it was put out since its last usable answer."""
    _trials: int = 0
    """The requests under way that were sent to it while it was in doubt."""

    @property
    def opens(self) -> float:
        """When the next request to it may start."""
        return max(self.asked_until, self.out_until)

    def asked_to_wait(self, seconds: float) -> None:
        """It said so. A wait it asked for before still holds."""
        self.spread_s = max(seconds, self.opens - now()) * SPREAD
        self.asked_until = max(self.asked_until, now() + seconds)

    @property
    def on_trial(self) -> bool:
        """True while a request finds out whether it is back."""
        return self._misses > 0 and self._trials > 0

    @contextmanager
    def asked(self) -> Iterator[None]:
        """The block sends it a request: a trial, when it was put out and has not answered since."""
        trial = int(self._misses > 0)
        self._trials += trial
        try:
            yield
        finally:
            self._trials -= trial

    def put_out(self, outs: int) -> None:
        """It gave no answer. It is out longer each time, until it gives one.

        Args:
            outs: What `outs` was when the request was sent. The requests of one wave put it out
                once: those sent before say nothing about it since.
        """
        if outs != self.outs:
            return
        self.outs += 1
        self._misses += 1
        seconds = min(LONGEST_OUT_S, 0.5 * 2.0 ** min(self._misses, 10))
        self.spread_s = max(seconds, self.opens - now()) * SPREAD
        self.out_until = now() + seconds

    def answered(self) -> None:
        """A usable answer came from there."""
        self._misses, self.out_until = 0, 0.0


@dataclass(slots=True)
class Route:
    """The equal replicas of an endpoint. Who asks goes round them, past those that are closed."""

    addresses: Sequence[RateLimit]
    sleep: Sleep = asyncio.sleep

    async def opened(self, since: float) -> float:
        """Return once one of them is open, spread over a little time; when that is.

        Args:
            since: When it is for the caller, at the earliest: whoever has slept until a time is
                past it, whatever the clock says.
        """
        while True:
            at = max(since, now())
            first = min(self.addresses, key=lambda address: address.opens)
            if first.opens <= at:
                return at
            since = first.opens
            await self.sleep(first.opens - at + random.uniform(0, first.spread_s))

    def pick(self, turn: int, at: float) -> RateLimit | None:
        """The first that may be asked then, going round from `turn`; None when all are closed."""
        n, ready = len(self.addresses), self._ready(at)
        around = (self.addresses[(turn + i) % n] for i in range(n))
        return next((address for address in around if address in ready), None)

    def takes(self, address: RateLimit, at: float) -> bool:
        """True when one more request may be sent there then."""
        return address in self._ready(at)

    def _ready(self, at: float) -> list[RateLimit]:
        """Those that are open; where there is a choice, one on trial is left to that trial."""
        ready = [address for address in self.addresses if address.opens <= max(at, now())]
        return [address for address in ready if not address.on_trial] or ready

    def put_out(self, address: RateLimit, outs: int) -> bool:
        """It is passed over for a while, if there is another; alone, it is asked again.

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
    """So much of something a minute, evenly."""

    per_minute: int
    next: float = 0.0
    """When the next may start."""

    def take(self, amount: int) -> None:
        self.next = max(self.next, now() - BURST_S) + amount * 60 / self.per_minute


@dataclass(slots=True)
class Rate:
    """The requests and tokens that an endpoint may be sent each minute; None is without end."""

    requests: _Meter | None = None
    tokens: _Meter | None = None
    _door: Limit = field(default_factory=lambda: Limit(1))

    def cap(self, requests: int | None, tokens: int | None) -> None:
        """No more than this a minute; of several caps on one endpoint, the lowest counts."""
        self.requests = _lower(self.requests, requests)
        self.tokens = _lower(self.tokens, tokens)

    async def turn(self, tokens: int, priority: int, sleep: Sleep) -> None:
        """Return when one more request of so many tokens may start; it is counted."""
        meters = [m for m in (self.requests, self.tokens) if m is not None]
        if not meters:
            return
        async with self._door.slot(priority):
            at = now()
            while (wait_s := max(meter.next for meter in meters) - at) > 0:
                step_s = min(wait_s, LOOK_S)  # those under way may come to less than estimated
                await sleep(step_s)
                at = max(now(), at + step_s)
            for meter, amount in ((self.requests, 1), (self.tokens, tokens)):
                if meter is not None:
                    meter.take(amount)

    def came_to(self, tokens: int, estimate: int) -> None:
        """One that was counted as `estimate` tokens was of so many."""
        if self.tokens is not None:
            self.tokens.take(tokens - estimate)


def _lower(meter: _Meter | None, per_minute: int | None) -> _Meter | None:
    if per_minute is None or (meter is not None and meter.per_minute <= per_minute):
        return meter
    return _Meter(per_minute, meter.next if meter else 0.0)


class Paces:
    """What all clients of a command know of the endpoints they ask."""

    def __init__(self) -> None:
        self._addresses = dict[str, RateLimit]()
        self._rates = dict[tuple[str, ...], Rate]()

    def address(self, url: str) -> RateLimit:
        """The one of that URL."""
        return self._addresses.setdefault(url, RateLimit(url))

    def rate(self, base_urls: tuple[str, ...]) -> Rate:
        """The one of that endpoint."""
        return self._rates.setdefault(base_urls, Rate())
