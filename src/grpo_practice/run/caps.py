"""Caps of a command, and the amounts that its runs have already spent at current prices."""

from collections.abc import Iterable, Sequence
from itertools import chain

from grpo_practice.config.schema.runs import RunConfig
from grpo_practice.core.calls import Usage
from grpo_practice.core.errors import ConfigError
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.budget import (
    ASSUMED_OUT,
    Account,
    Amount,
    Caps,
)
from grpo_practice.llm.endpoint import host, place
from grpo_practice.llm.prices import Price, Prices
from grpo_practice.run.clients import SIM_URL, endpoint_of
from grpo_practice.store import Store
from grpo_practice.store.queries import spending
from grpo_practice.store.queries.spending import Lost, Spent

UNKNOWN = Usage(ASSUMED_OUT, None, ASSUMED_OUT)
"""Usage assumed for a call with unknown token counts, if there is no other call to estimate
from.
"""


def admission(
    store: Store,
    names: Iterable[str],
    configs: Sequence[RunConfig],
    caps: Caps,
    command: str,
) -> Admission:
    """Return a command's admission gate for these runs; with caps, it starts from past spending.

    Spending includes earlier commands, all branches, and the runs that a run started. A call that
    may have been billed without reporting its tokens counts as the largest call of its stage.

    Raises:
        ConfigError: There is a cap on cost, and a model has no price.
    """
    if not caps:
        return Admission()
    spent, lost = list[Spent](), list[Lost]()
    for name in names:
        spent += store.read(spending.spent, name)
        lost += store.read(spending.lost, name)
    largest = dict[str, int]()
    for row in spent:
        largest[row.name] = max(largest.get(row.name, 0), row.most_out or 0)
    largest = {name: most for name, most in largest.items() if most}
    micro = 0 if caps.cost_micro is None else _micro(_PriceBook(configs), spent, lost)
    tries = sum(row.tries for row in spent) + sum(row.tries for row in lost)
    already = Amount(tries, _tokens(spent, lost), micro)
    return Admission(Account(caps, already, largest=largest, command=command))


class _PriceBook:
    """Prices of all models that a run calls or has called.

    Raises:
        ConfigError: A model of the configuration has no price.
    """

    def __init__(self, configs: Sequence[RunConfig]) -> None:
        self._prices = Prices(configs[0].evaluation.prices)
        self._by_place = dict[tuple[str, str], Price]()
        for model in chain.from_iterable(
            (*config.models.values(), *config.evaluation.readers) for config in configs
        ):
            _, endpoint = endpoint_of(model, prices=self._prices)
            name, url = model.model_provider.model, endpoint.base_url
            self._by_place[name, place(url)] = self._known(name, url, endpoint.price(name, url))

    def price_of(self, row: Spent) -> Price:
        """Return the price of past calls."""
        where = row.answered_by.rpartition("@")[2]
        if (row.name, where) in self._by_place:
            return self._by_place[row.name, where]
        # Stored calls record only the host, but prices are looked up by URL.
        url = f"https://{where}/v1"
        found = self._prices.find(row.name, url, simulated=where == host(SIM_URL))
        return self._known(row.name, url, found)

    def dearest(self) -> int:
        """Return the highest possible cost of one call to any of the models, in micro-dollars."""
        return max(price.cost_micro(UNKNOWN) or 0 for price in self._by_place.values())

    def _known(self, name: str, url: str, price: Price | None) -> Price:
        if price is None or price.cost_micro(UNKNOWN) is None:
            raise ConfigError(
                f"--max-cost: the price of model {name!r} at {host(url)} is unknown, so no request"
                " is sent",
                hint="set it in the config, in USD per million tokens; 0 for your own model:"
                f" evaluation.prices: {{{name!r}: {{input: 0.27, output: 1.10}}}}"
                " (in an evaluation's file: prices); or use --max-tokens instead",
            )
        return price


def _tokens(spent: Sequence[Spent], lost: Sequence[Lost]) -> int:
    largest = dict[str, int]()
    for row in spent:
        largest[row.stage] = max(largest.get(row.stage, 0), row.most_tokens or 0)
    unknown = 2 * ASSUMED_OUT
    total = sum((row.usage.tokens_in or 0) + (row.usage.tokens_out or 0) for row in spent)
    total += sum(row.uncounted * (largest[row.stage] or unknown) for row in spent)
    return total + sum(row.maybe_paid * (largest.get(row.stage) or unknown) for row in lost)


def _micro(book: _PriceBook, spent: Sequence[Spent], lost: Sequence[Lost]) -> int:
    largest, total = dict[str, int](), 0
    for row in spent:
        price = book.price_of(row) if row.unpriced.tokens_in or row.uncounted else None
        unknown = row.most_micro or (price.cost_micro(UNKNOWN) or 0 if price else 0)
        largest[row.stage] = max(largest.get(row.stage, 0), unknown)
        known = (price.cost_micro(row.unpriced) or 0) if price else 0
        total += (row.usage.cost_micro or 0) + known + row.uncounted * unknown
    return total + sum(row.maybe_paid * largest.get(row.stage, book.dearest()) for row in lost)
