"""Prices in a config: by model, in USD per million tokens."""

from pathlib import Path

import pytest

from grpo_practice.config import load_eval, load_practice, read_environment
from grpo_practice.config.identity import identity_of
from grpo_practice.config.schema.runs import ModelPrice
from grpo_practice.core.errors import ConfigError
from tests.config.files import EVAL, PRACTICE, write


def test_prices_are_read_by_model_also_from_the_environment(tmp_path: Path) -> None:
    asked, own = "{input: '${oc.env:PRICE_IN}', output: 1}", "{input: 0, output: 0}"
    path = write(tmp_path, {"e.yaml": f"{EVAL}prices:\n  gpt-4.1: {asked}\n  my/own: {own}\n"})
    config = load_eval(path, [], read_environment({"PRICE_IN": "0.5"}, tmp_path)).config
    assert config.prices == {
        "gpt-4.1": ModelPrice(input=0.5, output=1.0),
        "my/own": ModelPrice(input=0.0, output=0.0),
    }


def test_a_price_may_change_and_may_be_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, {"p.yaml": PRACTICE + "  prices:\n"})
    env = read_environment({}, tmp_path)
    before = load_practice(path, [], env).config
    after = load_practice(path, ["evaluation.prices={m: {input: 1, output: 2}}"], env).config
    assert before.evaluation.prices == {}
    assert after.evaluation.prices["m"].output == 2
    assert identity_of(before) == identity_of(after)


@pytest.mark.parametrize(
    ("prices", "key"),
    [
        ("{gpt-4.1: {input: -1, output: 2}}", r"prices\.gpt-4\.1\.input = -1"),
        ("{m: {input: .inf, output: 2}}", r"prices\.m\.input"),
        ("{m: {input: 1}}", r"prices\.m\.output: is missing"),
        ("{m: {input: 1, output: 2, inputs: 3}}", r"prices\.m\.inputs = 3: unknown key"),
    ],
)
def test_a_price_that_is_none_is_named(tmp_path: Path, prices: str, key: str) -> None:
    path = write(tmp_path, {"e.yaml": f"{EVAL}prices: {prices}\n"})
    with pytest.raises(ConfigError, match=key):
        load_eval(path, [], read_environment({}, tmp_path))


def test_prices_at_the_top_of_a_practice_config_are_shown_their_place(tmp_path: Path) -> None:
    path = write(tmp_path, {"p.yaml": PRACTICE + "prices: {m: {input: 1, output: 2}}\n"})
    with pytest.raises(ConfigError, match="unknown key") as e:
        load_practice(path, [], read_environment({}, tmp_path))
    assert e.value.hint == "did you mean evaluation.prices?"
