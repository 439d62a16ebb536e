"""What of `model_settings` is hashed, and what only goes along."""

from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.llm.params import canonical_params


def test_every_setting_gets_its_canonical_name_and_type() -> None:
    params, _ = canonical_params(
        {
            "temperature": 1,
            "top_p": 0.9,
            "frequency_penalty": None,
            "max_completion_tokens": 512,
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "reasoning": {"effort": "low", "summary": "auto"},
            "verbosity": "low",
            "top_logprobs": 3,
        }
    )
    assert params == {
        "temperature": 1.0,
        "top_p": 0.9,
        "max_tokens": 512,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "verbosity": "low",
        "logprobs": True,
        "top_logprobs": 3,
    }
    assert isinstance(params["temperature"], float)


def test_what_cannot_change_an_answer_is_not_hashed() -> None:
    params, wire = canonical_params(
        {
            "metadata": {"team": "a"},
            "store": False,
            "prompt_cache_retention": "24h",
            "include_usage": True,
            "truncation": "auto",
            "extra_headers": {"X-Team": "a", "X-None": None},
            "extra_query": {"api-version": 2},
            "reasoning": {"summary": "auto"},
            "extra_body": {"user": "u", "prompt_cache_key": "k", "stream": True},
            "extra_args": {"timeout": 3000},
        }
    )
    assert params == {}
    assert wire.headers == {"X-Team": "a"}
    assert wire.query == {"api-version": "2"}
    assert wire.unhashed == {
        "metadata": {"team": "a"},
        "store": False,
        "prompt_cache_retention": "24h",
        "user": "u",
        "prompt_cache_key": "k",
        "reasoning_summary": "auto",
    }
    assert wire.timeout_s == 3000.0


def test_extra_body_and_extra_args_are_merged_into_the_params() -> None:
    params, wire = canonical_params(
        {
            "temperature": 0.5,
            "extra_body": {"top_k": 20, "temperature": 1, "min_p": None},
            "extra_args": {"seedless": True},
        }
    )
    assert params == {"temperature": 1.0, "top_k": 20, "seedless": True}
    assert isinstance(params["temperature"], float)
    assert wire.timeout_s is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"temprature": 1}, r"model_settings\.temprature: there is no such setting"),
        ({"temperature": "hot"}, r"model_settings\.temperature: 'hot' is not a number"),
        ({"top_p": True}, r"model_settings\.top_p: True is not a number"),
        ({"extra_args": {"timeout": 0}}, r"extra_args\.timeout: 0 is not a number of seconds"),
        ({"extra_args": {"timeout": "5m"}}, r"extra_args\.timeout: '5m'"),
        ({"extra_body": {"messages": []}}, r"extra_body\.messages: the messages come from"),
        ({"extra_args": {"seed": 1}}, r"extra_args\.seed: .*practice\.seed"),
        ({"extra_body": [1]}, r"extra_body: \[1\] is not a mapping"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "are the same"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        canonical_params(settings)
