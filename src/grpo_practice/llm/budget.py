"""Budget of a command: its caps, its spending, and the estimate for one more request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from grpo_practice.core.calls import Request, Usage
from grpo_practice.core.errors import PausedError
from grpo_practice.core.text import DENSE_CHARS_PER_TOKEN
from grpo_practice.llm.prices import Price

ASSUMED_OUT = 2_000
"""Assumed tokens of a reply without `max_tokens`, before the model has replied once."""


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of requests, of tokens (in plus out) and of micro-dollars."""

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
        """Return the name of the first cap that the amount exceeds; None if it exceeds no cap."""
        caps = {name: getattr(self, name) for name in FLAGS}
        over = (n for n, cap in caps.items() if cap is not None and getattr(amount, n) > cap)
        return next(over, None)


NO_CAPS = Caps()
FLAGS: Mapping[str, str] = {
    "cost_micro": "--max-cost",
    "tokens": "--max-tokens",
    "requests": "--max-requests",
}
"""Cap → its command-line option, in the order in which caps are checked."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One try of a request, before it is sent."""

    model: str = ""
    size: int = 0
    """Length of its JSON, in bytes."""
    max_tokens: int | None = None
    price: Price | None = None

    @classmethod
    def of(cls, request: Request, size: int, price: Price | None) -> "Ask":
        """Describe a try of a request, whose JSON has this size."""
        most = request.params.get("max_tokens")
        return cls(request.model, size, most if isinstance(most, int) else None, price)


@dataclass(slots=True)
class Account:
    """Spending of a command, for its own run and the runs that it starts."""

    caps: Caps = NO_CAPS
    spent: Amount = NOTHING
    """Total so far, including earlier commands."""
    reserved: Amount = NOTHING
    """Sum of the estimates of the tries in flight."""
    largest: dict[str, int] = field(default_factory=dict)
    """Model → tokens of its longest reply so far."""
    command: str = ""
    """Command line as typed, for the hint on how to resume."""

    def estimate(self, ask: Ask) -> Amount:
        """Return the maximum cost of a try, with a reply as long as allowed or as seen so far."""
        # Round up: a cap holds only if no estimate is below the actual cost.
        tokens_in = -(-ask.size // DENSE_CHARS_PER_TOKEN)
        tokens_out = ask.max_tokens or self.largest.get(ask.model, ASSUMED_OUT)
        cost = ask.price.cost_micro(Usage(tokens_in, None, tokens_out)) if ask.price else None
        return Amount(1, tokens_in + tokens_out, cost or 0)

    def fits(self, need: Amount) -> bool:
        """Return True if `need` stays within the caps, whatever the tries in flight will cost."""
        if self.caps is NO_CAPS:
            return True
        return self.caps.exceeded(self.spent + self.reserved + need) is None

    def answered(self, ask: Ask, usage: Usage, estimate: Amount) -> Amount:
        """Return the actual cost of an answered try; missing usage is taken from the estimate."""
        if usage.tokens_in is None or usage.tokens_out is None:
            return estimate
        self.largest[ask.model] = max(self.largest.get(ask.model, 0), usage.tokens_out)
        cost = ask.price.cost_micro(usage) if ask.price else None
        tokens = usage.tokens_in + usage.tokens_out
        return Amount(1, tokens, estimate.cost_micro if cost is None else cost)

    def paused(self, need: Amount) -> PausedError:
        """Return the error that explains why `need` is not spent, and how to resume."""
        name = self.caps.exceeded(self.spent + self.reserved + need) or "requests"
        flag, cap = FLAGS[name], getattr(self.caps, name)
        spent, more = getattr(self.spent, name), getattr(need, name)
        # Suggest twice the cap or ten more requests: with less, the run would soon pause again.
        raised = max(2 * cap, spent + 10 * more)
        # Not with `--again`, which would replay what is already paid for.
        command = with_cap(self.command.replace(" --again", ""), name, raised)
        text = f"paused by {flag} {_number(name, cap)}: {_shown(name, spent)} spent so far"
        if name != "requests":  # the next request needs exactly one
            text += f", and one more request may need {_shown(name, more)}"
        return PausedError(
            text,
            hint=f"all replies are stored; to continue: {command}",
            go_on=command or None,
        )


def with_cap(command: str, name: str, amount: int) -> str:
    """Return the command, or the Python call, with its value of this cap replaced."""
    flag, typed, end = FLAGS[name], command, ""
    cap, known = f"{flag} {_number(name, amount)}", rf"{flag}[= ]\S+"
    if typed.endswith(")"):
        keyword = flag.removeprefix("--").replace("-", "_")
        cap, known = f"{keyword}={_number(name, amount)}", keyword + r"=[\d.]+"
        typed, end = typed[:-1], ")"
    capped, replaced = re.subn(known, cap, typed, count=1)
    if not replaced:
        space = "" if typed.endswith("(") else ", " if end else " "
        capped = f"{typed}{space}{cap}".strip()
    return capped + end


def _number(name: str, amount: int) -> str:
    """Format an amount as its command-line option expects it."""
    return f"{amount / 1e6:.6f}".rstrip("0").rstrip(".") if name == "cost_micro" else str(amount)


def _shown(name: str, amount: int) -> str:
    if name == "cost_micro":
        return f"${amount / 1e6:.6f}" if amount < 10_000 else f"${amount / 1e6:.2f}"
    return f"{amount} {name if amount != 1 else name[:-1]}"
