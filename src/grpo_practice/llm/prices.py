"""Cost of a call: by the user's own prices, else by a published list, else it is unknown.

The list also says how much a model takes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from grpo_practice.calls import Reply, Usage
from grpo_practice.config.schema.runs import ModelPrice

MILLION = Decimal(1_000_000)
_DATED = re.compile(r"[-@:]?(\d{4}-\d{2}-\d{2}|\d{4}|\d{6}|\d{8}|latest)")
"""What may stand behind a listed name without making it another model."""
_UNSOLD = re.compile(r"[^.]*|[\d.]+|.*:.*")
"""Hosts that no list can name: `localhost`, a name without a dot, an address."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one model costs at one endpoint."""

    source: str
    """The list it is from: `config`, `simulated`, `genai-prices 0.2.3`."""
    usd: Callable[[Usage], Decimal | None]
    """Dollars of a usage whose tokens in and out are known."""

    def cost_micro(self, usage: Usage) -> int | None:
        """Micro-dollars, rounded up; None when the tokens are not known."""
        if usage.tokens_in is None or usage.tokens_out is None:
            return None
        usd = self.usd(usage)
        return None if usd is None else int((usd * MILLION).to_integral_value(ROUND_CEILING))


FREE = Price("simulated", lambda _: Decimal(0))
"""The simulated endpoint inside the program: nobody is paid."""


class Prices:
    """Finds the price of a model.

    The user's own prices count first, by the model's name as the config has it. The published
    list counts for a model that it has under this very name (or with a date behind it) at the
    provider whose address the endpoint has; no other name and no other host will do. Nothing is
    fetched: it is the list that is installed.
    """

    def __init__(self, own: Mapping[str, ModelPrice]) -> None:
        self._own = own
        self._known = dict[tuple[str, str], Price | None]()

    def of(self, model: str, url: str, *, simulated: bool = False) -> Price | None:
        """The price of a model at a URL; None when it is unknown, which is not the same as 0."""
        if model in self._own:
            return Price("config", _by(self._own[model]))
        if simulated:
            return FREE
        if (model, url) not in self._known:
            self._known[model, url] = _listed(model.lower(), url)
        return self._known[model, url]


def unpriced(model: str, url: str) -> None:
    """No price: what a client without a price list is given."""


def priced(reply: Reply, price: Price | None) -> Reply:
    """The reply with its cost, where the price and the tokens are known."""
    cost = price.cost_micro(reply.usage) if price else None
    if price is None or cost is None:
        return reply
    return replace(reply, usage=replace(reply.usage, cost_micro=cost), price=price.source)


def _by(price: ModelPrice) -> Callable[[Usage], Decimal]:
    """Cached tokens are part of those in, reasoning tokens part of those out."""
    per_in, per_out = Decimal(str(price.input)), Decimal(str(price.output))
    per_cached = per_in if price.cached_input is None else Decimal(str(price.cached_input))
    per_reasoning = per_out if price.reasoning is None else Decimal(str(price.reasoning))

    def usd(usage: Usage) -> Decimal:
        in_, out = usage.tokens_in or 0, usage.tokens_out or 0
        cached = min(usage.tokens_cached or 0, in_)
        reasoning = min(usage.tokens_reasoning or 0, out)
        dear = (in_ - cached) * per_in + (out - reasoning) * per_out
        return (dear + cached * per_cached + reasoning * per_reasoning) / MILLION

    return usd


def context_window(model: str, url: str) -> int | None:
    """Return how many tokens a model takes, by the installed list; None where it does not say.

    The list counts as it does for prices: for this model under this name at its provider's address.
    """
    found = _in_list(model.lower(), url)
    return found[1].context_window if found else None


def _listed(model: str, url: str) -> Price | None:
    """Return the price in the installed list."""
    found = _in_list(model, url)
    if found is None:
        return None

    import genai_prices

    return Price(f"genai-prices {genai_prices.__version__}", partial(_calculated, *found))


def _in_list(model: str, url: str) -> tuple[Any, Any] | None:
    """Return the provider at this address and its model of this name; the list loads slowly."""
    parts = urlsplit(url)
    if _UNSOLD.fullmatch(parts.hostname or ""):
        return None

    from genai_prices.data_snapshot import get_snapshot

    address = f"{parts.scheme}://{parts.hostname}{parts.path}"
    for provider in get_snapshot().providers:
        at = re.match(provider.api_pattern, address)
        if at is None or not _ends_a_name(address, at.end()):
            continue
        found = provider.find_model(model)
        if found is not None and _is_named(found, model):
            return provider, found
    return None


def _ends_a_name(address: str, end: int) -> bool:
    """True unless the match ends inside a host's name: `api.x.com` is not `api.x.com.evil.net`."""
    return end >= len(address) or address[end] in "/:" or address[end - 1] in "./"


def _is_named(found: Any, model: str) -> bool:
    """True when the list means this model, rather than all whose names look like it."""
    if model == found.id or _spelt(found.match, model):
        return True
    return model.startswith(found.id) and bool(_DATED.fullmatch(model[len(found.id) :]))


def _spelt(clause: Any, model: str) -> bool:
    """True when a clause of the list has the name in full."""
    if (parts := getattr(clause, "or_", None)) is not None:
        return any(_spelt(part, model) for part in parts)
    return bool(getattr(clause, "equals", None) == model)


def _calculated(provider: Any, found: Any, usage: Usage) -> Decimal | None:
    """Dollars by the list as it is now; None when it has no price for tokens in or out."""
    from genai_prices import Usage as Counted

    now = datetime.now(UTC)
    prices = found.get_prices(now)
    if prices.input_mtok is None or prices.output_mtok is None:
        return None
    cached = min(usage.tokens_cached or 0, usage.tokens_in or 0)
    counted = Counted(
        input_tokens=usage.tokens_in, output_tokens=usage.tokens_out, cache_read_tokens=cached
    )
    total: Decimal = found.calc_price(counted, provider, genai_request_timestamp=now).total_price
    return total
