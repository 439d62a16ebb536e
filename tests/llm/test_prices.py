"""What a call cost: the user's own price, the list's for this very model and host, or unknown."""

from dataclasses import replace
from decimal import Decimal

import pytest

from grpo_practice.config.schema.runs import ModelPrice
from grpo_practice.core.calls import Reply, Usage
from grpo_practice.llm.prices import FREE, Price, Prices, context_window, priced

OPENAI = "https://api.openai.com/v1"
MILLION = Usage(1_000_000, None, 1_000_000)


def usd(price: Price | None, usage: Usage = MILLION) -> float | None:
    found = price.usd(usage) if price else None
    return None if found is None else float(found)


def test_1_42_without_usage_the_cost_is_unknown_and_not_0() -> None:
    price = Prices({"m": ModelPrice(input=1, output=2)}).find("m", "http://x/v1")
    for usage in (Usage(), Usage(5), Usage(None, None, 5)):
        reply = priced(Reply({}, usage=usage), price)
        assert (reply.usage.cost_micro, reply.price) == (None, None)


def test_1_43_cached_and_reasoning_tokens_are_parts_with_prices_of_their_own() -> None:
    own = ModelPrice(input=1.0, cached_input=0.1, output=10, reasoning=20)
    price = Prices({"m": own}).find("m", "http://x/v1")
    assert price is not None
    usage = Usage(1_000, 400, 100, 30)
    reply = priced(Reply({}, usage=usage), price)
    cost = 600 + 40 + 700 + 600
    assert price.usd(usage) == Decimal(cost) / 1_000_000
    assert (reply.usage, reply.price) == (replace(usage, cost_micro=cost), "config")


def test_cached_and_reasoning_tokens_cost_the_same_as_others_unless_it_is_said() -> None:
    price = Prices({"m": ModelPrice(input=1, output=10)}).find("m", "http://x/v1")
    assert usd(price, Usage(1_000, 400, 100, 30)) == usd(price, Usage(1_000, None, 100))
    beyond = Prices({"m": ModelPrice(input=1, cached_input=0, output=1, reasoning=0)})
    assert usd(beyond.find("m", ""), Usage(10, 99, 10, 99)) == 0  # a part is never more than all


def test_a_cost_is_rounded_up_so_that_many_small_ones_are_not_lost() -> None:
    price = Prices({"m": ModelPrice(input=0.02, output=0.02)}).find("m", "")
    assert price is not None
    assert price.cost_micro(Usage(10, None, 0)) == 1
    free = Prices({"m": ModelPrice(input=0, output=0)}).find("m", "")
    assert free is not None
    assert free.cost_micro(MILLION) == 0


def test_the_users_price_counts_before_the_list_and_the_simulated_endpoint_is_free() -> None:
    own = {"gpt-4o-mini": ModelPrice(input=7, output=8), "sim": ModelPrice(input=1, output=1)}
    assert usd(Prices(own).find("gpt-4o-mini", OPENAI)) == 15
    assert Prices({}).find("sim", "http://simulated/v1", simulated=True) is FREE
    assert usd(Prices(own).find("sim", "http://simulated/v1", simulated=True)) == 2
    assert Prices({}).find("sim", "http://127.0.0.1:8000/v1") is None


def test_a_batch_costs_what_the_list_or_the_users_discount_says() -> None:
    usage = Usage(1_000_000, None, 1_000_000)
    own = {
        "m": ModelPrice(input=1, output=3, batch_discount=0.25),
        "n": ModelPrice(input=1, output=3),
    }
    prices = Prices(own)
    for model, share in (("gpt-4o-mini", "0.5"), ("m", "0.75"), ("n", "1")):
        live, batch = (prices.find(model, OPENAI, batch=b) for b in (False, True))
        assert live is not None
        assert batch is not None
        assert batch.usd(usage) == Decimal(share) * (live.usd(usage) or 0)


def test_the_list_knows_a_model_at_its_own_provider() -> None:
    price = Prices({}).find("gpt-4o-mini", OPENAI)
    assert price is not None
    assert price.source.startswith("genai-prices 0.2.")
    assert usd(price) == pytest.approx(0.75)
    half_cached = usd(price, Usage(1_000_000, 500_000, 1_000_000))
    assert half_cached == pytest.approx(0.75 - 0.15 / 4)
    assert usd(Prices({}).find("GPT-4o-mini", OPENAI)) == usd(price)
    dated = Prices({}).find("gpt-4o-mini-2024-07-18", "https://API.openai.com/v1/chat/completions")
    assert usd(dated) == usd(price)


@pytest.mark.parametrize(
    ("model", "url"),
    [
        ("gpt-4o-mini", "http://localhost:8000/v1"),
        ("gpt-4o-mini", "https://api.openai.com.evil.net/v1"),
        ("gpt-4o-mini", "https://my-openai.com/v1"),
        ("gpt-4o-mini", "https://api.deepseek.com/v1"),
        ("gpt-4o-mini-turbo", OPENAI),
        ("gpt-4o-min", OPENAI),
        ("my-gpt-4o-mini", OPENAI),
        ("ft:gpt-4o-mini:mine", OPENAI),
        ("llama", OPENAI),
        ("", OPENAI),
    ],
)
def test_another_host_or_a_name_that_looks_alike_has_no_price(model: str, url: str) -> None:
    assert Prices({}).find(model, url) is None


HOSTS = {
    "openai": OPENAI,
    "deepseek": "https://api.deepseek.com",
    "anthropic": "https://api.anthropic.com/v1",
    "mistral": "https://api.mistral.ai/v1",
    "moonshotai": "https://api.moonshot.ai/v1",
}


@pytest.mark.parametrize(
    ("model", "url", "tokens"),
    [
        ("gpt-4o", OPENAI, 128_000),
        ("GPT-4o-2024-08-06", OPENAI, 128_000),
        ("gpt-4o", "https://api.openai.com.evil.net/v1", None),
        ("gpt-4o", "http://localhost:8000/v1", None),
        ("my-own", OPENAI, None),
    ],
)
def test_what_a_model_takes_is_known_where_its_price_would_be(
    model: str, url: str, tokens: int | None
) -> None:
    assert context_window(model, url) == tokens


def test_of_a_family_that_the_list_matches_as_a_whole_only_named_models_are_taken() -> None:
    from genai_prices.data_snapshot import get_snapshot

    prices, taken = Prices({}), 0
    for provider in get_snapshot().providers:
        for model in provider.models if provider.id in HOSTS else []:
            url = HOSTS[provider.id]
            taken += prices.find(model.id, url) is not None
            assert prices.find(f"{model.id}-hyper-9", url) is None
    assert taken > 100
