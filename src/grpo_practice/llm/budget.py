"""How much was spent and may be: requests, tokens, money; what one more request may come to."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from grpo_practice.calls import Usage
from grpo_practice.errors import PausedError
from grpo_practice.llm.prices import Price
from grpo_practice.text import DENSE_CHARS_PER_TOKEN

ASSUMED_OUT = 2_000
"""Tokens of a reply where nothing is known: no `max_tokens`, and no reply of that model yet."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Requests, tokens in and out, micro-dollars."""

    requests: int = 0
    tokens: int = 0
    cost_micro: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.cost_micro + other.cost_micro,
        )

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(
            self.requests - other.requests,
            self.tokens - other.tokens,
            self.cost_micro - other.cost_micro,
        )


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Caps:
    """The most a run may come to; None means without end."""

    requests: int | None = None
    tokens: int | None = None
    """In and out together."""
    cost_micro: int | None = None

    def __bool__(self) -> bool:
        return any(cap is not None for _, cap in self._each())

    def exceeded(self, amount: Amount) -> str | None:
        """Which cap the amount is beyond (`cost_micro`, `tokens`, `requests`); None without."""
        return next(
            (n for n, cap in self._each() if cap is not None and getattr(amount, n) > cap), None
        )

    def _each(self) -> Iterator[tuple[str, int | None]]:
        yield from (
            ("cost_micro", self.cost_micro),
            ("tokens", self.tokens),
            ("requests", self.requests),
        )


NO_CAPS = Caps()
FLAGS: Mapping[str, str] = {
    "cost_micro": "--max-cost",
    "tokens": "--max-tokens",
    "requests": "--max-requests",
}


@dataclass(frozen=True, slots=True)
class Ask:
    """One try of a request, before it is sent."""

    model: str = ""
    size: int = 0
    """Bytes of its JSON."""
    max_tokens: int | None = None
    price: Price | None = None


@dataclass(slots=True)
class Account:
    """What a command may spend, and what it has: of its run and of the runs that this one makes.

    Args:
        caps: The most it may come to.
        spent: What earlier commands spent.
        largest: Model → tokens of the longest reply so far.
        command: As typed, for the sentence that says how to go on.
    """

    caps: Caps = NO_CAPS
    spent: Amount = NOTHING
    reserved: Amount = NOTHING
    """By tries under way."""
    largest: dict[str, int] = field(default_factory=dict)
    command: str = ""

    def estimate(self, ask: Ask) -> Amount:
        """What a try may come to: its request, and a reply as long as allowed or known so far."""
        tokens_in = -(-ask.size // DENSE_CHARS_PER_TOKEN)
        tokens_out = ask.max_tokens or self.largest.get(ask.model, ASSUMED_OUT)
        cost = ask.price.cost_micro(Usage(tokens_in, None, tokens_out)) if ask.price else None
        return Amount(1, tokens_in + tokens_out, cost or 0)

    def fits(self, need: Amount) -> bool:
        """True when it stays within the caps, whatever is under way."""
        if self.caps is NO_CAPS:
            return True
        return self.caps.exceeded(self.spent + self.reserved + need) is None

    def answered(self, ask: Ask, usage: Usage, estimate: Amount) -> Amount:
        """What an answered try came to; of what its usage does not say, the estimate."""
        if usage.tokens_in is None or usage.tokens_out is None:
            return estimate
        self.largest[ask.model] = max(self.largest.get(ask.model, 0), usage.tokens_out)
        cost = ask.price.cost_micro(usage) if ask.price else None
        tokens = usage.tokens_in + usage.tokens_out
        return Amount(1, tokens, estimate.cost_micro if cost is None else cost)

    def paused(self, need: Amount) -> PausedError:
        """Why a try that needs this much is not sent, and how to go on."""
        name = self.caps.exceeded(self.spent + self.reserved + need) or "requests"
        flag, cap = FLAGS[name], getattr(self.caps, name)
        spent, more = getattr(self.spent, name), getattr(need, name)
        wanted = max(2 * cap, spent + 10 * more)
        return PausedError(
            f"paused by {flag} {_number(name, cap)}: {_shown(name, spent)} spent so far,"
            f" and one more request may need {_shown(name, more)}",
            hint=f"all that was answered is stored; to go on: {self._with(flag, name, wanted)}",
        )

    def _with(self, flag: str, name: str, cap: int) -> str:
        """The command with another cap."""
        given = f"{flag} {_number(name, cap)}"
        command, replaced = re.subn(rf"{flag}[= ]\S+", given, self.command, count=1)
        return command if replaced else f"{self.command} {given}".strip()


def _number(name: str, amount: int) -> str:
    """As the flag has it."""
    return f"{amount / 1e6:.6f}".rstrip("0").rstrip(".") if name == "cost_micro" else str(amount)


def _shown(name: str, amount: int) -> str:
    if name == "cost_micro":
        return f"${amount / 1e6:.6f}" if amount < 10_000 else f"${amount / 1e6:.2f}"
    return f"{amount} {name if amount != 1 else name[:-1]}"
