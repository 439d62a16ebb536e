"""Cost of a call by the user's own prices, or else by a published list; unknown otherwise.

The list also contains the context windows of models.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from grpo_practice.config.schema.runs import ModelPrice
from grpo_practice.core.calls import Reply, Usage

MILLION = Decimal(1_000_000)
_DATED = re.compile(r"[-@:]?(\d{4}-\d{2}-\d{2}|\d{4}|\d{6}|\d{8}|latest)")
"""Suffix of a listed name that does not denote another model."""
_UNSOLD = re.compile(r"[^.]*|[\d.]+|.*:.*")
"""Hosts that no price list contains: names without a dot, such as `localhost`, and IP addresses."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one model at one endpoint."""

    source: str
    """Name of the price list: `config`, `simulated`, `genai-prices 0.2.3`."""
    usd: Callable[[Usage], Decimal | None]
    """Function from a usage with known token counts to its cost in dollars."""

    def cost_micro(self, usage: Usage) -> int | None:
        """Return the micro-dollars, rounded up; None if the token counts are unknown."""
        if usage.tokens_in is None or usage.tokens_out is None:
            return None
        usd = self.usd(usage)
        # Up: rounded to the nearest, thousands of tiny calls would cost nothing.
        return None if usd is None else int((usd * MILLION).to_integral_value(ROUND_CEILING))


FREE = Price("simulated", lambda _: Decimal(0))
"""Price of the simulated endpoint inside the program."""


class Prices:
    """The prices of models.

    The user's own prices take precedence, by the model's name in the config. The published list
    applies if it has the model under exactly this name, or this name plus a date, at the provider
    that owns the endpoint's address; other names and hosts do not match. Nothing is downloaded: the
    installed list is used.
    """

    def __init__(self, own: Mapping[str, ModelPrice]) -> None:
        self._own = own
        self._known = dict[tuple[str, str, bool], Price | None]()

    def find(
        self, model: str, url: str, *, simulated: bool = False, batch: bool = False
    ) -> Price | None:
        """Return the price of a model at a URL; None if unknown, which is not the same as 0.

        With `batch`, it is the price of a request in a batch, if the list or the user gives one.
        """
        if model in self._own:
            own = self._own[model]
            share = 1 - Decimal(str(own.batch_discount)) if batch else Decimal(1)
            return Price("config", _own_usd(own, share))
        if simulated:
            return FREE
        if (model, url, batch) not in self._known:
            self._known[model, url, batch] = _listed_price(model.lower(), url, batch=batch)
        return self._known[model, url, batch]


def unpriced(model: str, url: str) -> None:
    """Return no price, for clients without a price list."""


def priced(reply: Reply, price: Price | None) -> Reply:
    """Return the reply with its cost, if the price and the token counts are known."""
    cost = price.cost_micro(reply.usage) if price else None
    if price is None or cost is None:
        return reply
    return replace(reply, usage=replace(reply.usage, cost_micro=cost), price=price.source)


def _own_usd(price: ModelPrice, share: Decimal) -> Callable[[Usage], Decimal]:
    """Return the function from a usage to dollars at this share of the user's own price."""
    per_in, per_out = Decimal(str(price.input)), Decimal(str(price.output))
    per_cached = per_in if price.cached_input is None else Decimal(str(price.cached_input))
    per_reasoning = per_out if price.reasoning is None else Decimal(str(price.reasoning))

    def usd(usage: Usage) -> Decimal:
        # Cached tokens are included in input tokens, reasoning tokens in output tokens.
        in_, out = usage.tokens_in or 0, usage.tokens_out or 0
        cached = min(usage.tokens_cached or 0, in_)
        reasoning = min(usage.tokens_reasoning or 0, out)
        dear = (in_ - cached) * per_in + (out - reasoning) * per_out
        return share * (dear + cached * per_cached + reasoning * per_reasoning) / MILLION

    return usd


def context_window(model: str, url: str) -> int | None:
    """Return the model's context window in tokens; None if the list does not contain it.

    The list applies as for prices: to this model under this name at its provider's address.
    """
    listed = _in_list(model.lower(), url)
    return listed[1].context_window if listed else None


def _listed_price(model: str, url: str, *, batch: bool) -> Price | None:
    listed = _in_list(model, url)
    if listed is None:
        return None

    import genai_prices

    return Price(f"genai-prices {genai_prices.__version__}", partial(_listed_usd, *listed, batch))


def _in_list(model: str, url: str) -> tuple[Any, Any] | None:
    """Return the provider at this address and its model of this name; the list is slow to load."""
    parts = urlsplit(url)
    if _UNSOLD.fullmatch(parts.hostname or ""):
        return None

    from genai_prices.data_snapshot import get_snapshot

    address = f"{parts.scheme}://{parts.hostname}{parts.path}"
    for provider in get_snapshot().providers:
        at = re.match(provider.api_pattern, address)
        # A match may end in the middle of a host name: `api.x.com` is not `api.x.com.evil.net`.
        rest = address[at.end() :] if at else ""
        if at is None or not (rest[:1] in ("", "/", ":") or at[0].endswith((".", "/"))):
            continue
        listed = provider.find_model(model)
        if listed is not None and _is_named(listed, model):
            return provider, listed
    return None


def _is_named(listed: Any, model: str) -> bool:
    """Return True if the list means this very model, not a pattern that its name matches."""
    if model == listed.id or _is_spelt_out(listed.match, model):
        return True
    return model.startswith(listed.id) and bool(_DATED.fullmatch(model[len(listed.id) :]))


def _is_spelt_out(clause: Any, model: str) -> bool:
    """Return True if a clause of the list contains the full name."""
    if (parts := getattr(clause, "or_", None)) is not None:
        return any(_is_spelt_out(part, model) for part in parts)
    return bool(getattr(clause, "equals", None) == model)


def _listed_usd(provider: Any, listed: Any, batch: bool, usage: Usage) -> Decimal | None:
    """Return the cost in dollars at today's list prices; None if input or output has no price."""
    from genai_prices import Usage as Counted

    now = datetime.now(UTC)
    prices = listed.get_prices(now)
    if prices.input_mtok is None or prices.output_mtok is None:
        return None
    cached = min(usage.tokens_cached or 0, usage.tokens_in or 0)
    counted = Counted(
        input_tokens=usage.tokens_in, output_tokens=usage.tokens_out, cache_read_tokens=cached
    )
    context = {"processing": "batch"} if batch else None
    total: Decimal = listed.calc_price(
        counted, provider, genai_request_timestamp=now, price_context=context
    ).total_price
    return total
