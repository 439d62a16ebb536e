"""Budget of a command: requests, tokens and money spent, capped, and needed by one more request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from grpo_practice.calls import Usage
from grpo_practice.errors import PausedError
from grpo_practice.llm.prices import Price
from grpo_practice.text import DENSE_CHARS_PER_TOKEN

ASSUMED_OUT = 2_000
"""Tokens of a reply without `max_tokens`, of a model that has not replied yet."""


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
    """Upper limits of a run; None means no limit."""

    requests: int | None = None
    tokens: int | None = None
    """Limit for tokens in and out together."""
    cost_micro: int | None = None

    def __bool__(self) -> bool:
        return self != NO_CAPS

    def exceeded(self, amount: Amount) -> str | None:
        """Return the name of the first cap that the amount exceeds; None if it exceeds none."""
        caps = {name: getattr(self, name) for name in FLAGS}
        over = (n for n, cap in caps.items() if cap is not None and getattr(amount, n) > cap)
        return next(over, None)


NO_CAPS = Caps()
FLAGS: Mapping[str, str] = {
    "cost_micro": "--max-cost",
    "tokens": "--max-tokens",
    "requests": "--max-requests",
}
"""Cap → its flag, in the order in which caps are checked."""


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
    """Spending of a command, for its run and the runs that this one makes."""

    caps: Caps = NO_CAPS
    spent: Amount = NOTHING
    """Total so far, earlier commands included."""
    reserved: Amount = NOTHING
    """Estimates of the tries in flight."""
    largest: dict[str, int] = field(default_factory=dict)
    """Model → tokens of the longest reply so far."""
    command: str = ""
    """Command line as typed, for the hint that says how to go on."""

    def estimate(self, ask: Ask) -> Amount:
        """Return the most a try may come to, with a reply as long as allowed or seen so far."""
        # Rounded up: a cap holds only if no estimate is below what the try comes to.
        tokens_in = -(-ask.size // DENSE_CHARS_PER_TOKEN)
        tokens_out = ask.max_tokens or self.largest.get(ask.model, ASSUMED_OUT)
        cost = ask.price.cost_micro(Usage(tokens_in, None, tokens_out)) if ask.price else None
        return Amount(1, tokens_in + tokens_out, cost or 0)

    def fits(self, need: Amount) -> bool:
        """Return True when it stays within the caps, whatever those in flight come to."""
        if self.caps is NO_CAPS:
            return True
        return self.caps.exceeded(self.spent + self.reserved + need) is None

    def answered(self, ask: Ask, usage: Usage, estimate: Amount) -> Amount:
        """Return what an answered try came to: the estimate for what its usage does not say."""
        if usage.tokens_in is None or usage.tokens_out is None:
            return estimate
        self.largest[ask.model] = max(self.largest.get(ask.model, 0), usage.tokens_out)
        cost = ask.price.cost_micro(usage) if ask.price else None
        tokens = usage.tokens_in + usage.tokens_out
        return Amount(1, tokens, estimate.cost_micro if cost is None else cost)

    def paused(self, need: Amount) -> PausedError:
        """Return the error that says why this much is not spent, and how to go on."""
        name = self.caps.exceeded(self.spent + self.reserved + need) or "requests"
        flag, cap = FLAGS[name], getattr(self.caps, name)
        spent, more = getattr(self.spent, name), getattr(need, name)
        # Twice as much, or ten more requests: fewer would soon be paused again.
        raised = max(2 * cap, spent + 10 * more)
        command = with_cap(self.command.replace(" --again", ""), name, raised)
        text = f"paused by {flag} {_number(name, cap)}: {_shown(name, spent)} spent so far"
        if name != "requests":  # one more of these needs one
            text += f", and one more request may need {_shown(name, more)}"
        return PausedError(
            text,
            hint=f"all that was answered is stored; to go on: {command}",
            go_on=command or None,
        )


def with_cap(command: str, name: str, amount: int) -> str:
    """Return the command, or the call from Python, with this cap in place of its own."""
    flag, typed, end = FLAGS[name], command, ""
    cap = f"{flag} {_number(name, amount)}"
    if typed.endswith(")"):
        cap = cap.removeprefix("--").replace("-", "_").replace(" ", "=")
        typed, end = typed[:-1], ")"
    capped, replaced = re.subn(_typed(command, flag), cap, typed, count=1)
    if not replaced:
        space = "" if typed.endswith("(") else ", " if end else " "
        capped = f"{typed}{space}{cap}".strip()
    return capped + end


def _typed(command: str, flag: str) -> str:
    """Return a pattern for a cap as it stands in a command, or in a call from Python."""
    if command.endswith(")"):
        return flag.removeprefix("--").replace("-", "_") + r"=[\d.]+"
    return rf"{flag}[= ]\S+"


def _number(name: str, amount: int) -> str:
    """Format an amount as its flag takes it."""
    return f"{amount / 1e6:.6f}".rstrip("0").rstrip(".") if name == "cost_micro" else str(amount)


def _shown(name: str, amount: int) -> str:
    if name == "cost_micro":
        return f"${amount / 1e6:.6f}" if amount < 10_000 else f"${amount / 1e6:.2f}"
    return f"{amount} {name if amount != 1 else name[:-1]}"
