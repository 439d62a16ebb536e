"""A completion's body, as a `Reply`."""

from typing import Any

import pytest

from grpo_practice.core.calls import Message, Reply, Usage
from grpo_practice.llm.chat_completions import read_reply, read_usage
from grpo_practice.llm.http_response import Response
from tests.contract.endpoint.actions import completion

URL = "https://api.example.com:8443/v1/chat/completions"


def read(body: dict[str, Any]) -> Reply:
    return read_reply(Response(200, {}, "", body, URL), asked="asked", tries=2, seconds=0.5)


def test_the_message_is_kept_with_all_its_keys() -> None:
    message: Message = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
        "refusal": None,
        "x_vendor": {"k": [1]},
    }
    assert read(completion(message)).message == message


def test_a_message_without_a_role_can_be_sent_back() -> None:
    assert read(completion({"content": "hi"})).message == {"role": "assistant", "content": "hi"}


def test_34_an_empty_message_is_returned_as_it_is() -> None:
    reply = read(completion({"role": "assistant", "content": None}))
    assert (reply.message["content"], reply.content, reply.finish) == (None, "", "stop")


@pytest.mark.parametrize("kind", ["reasoning", "reasoning_text", "thinking", "thought"])
def test_parts_of_reasoning_are_kept_and_are_no_part_of_the_answer(kind: str) -> None:
    parts: list[Any] = [
        {"type": kind, "text": "It may be \\boxed{23}. No."},
        {"type": "text", "text": "\\boxed"},
        "lost",
        {"type": "output_text", "text": "{24}"},
        {"text": "."},
    ]
    reply = read(completion({"role": "assistant", "content": parts}))
    assert reply.content == "\\boxed{24}."
    assert reply.message["content"] == parts


def test_it_says_who_answered_after_how_many_tries() -> None:
    reply = read(completion("hi", model="m-2025", finish="length"))
    assert (reply.answered_by, reply.finish) == ("m-2025@api.example.com:8443", "length")
    assert (reply.tries, reply.seconds) == (2, 0.5)


@pytest.mark.parametrize("model", [None, "", 7])
def test_a_body_that_names_no_model_counts_as_the_one_asked(model: Any) -> None:
    body = completion("hi") | {"model": model}
    assert read(body).answered_by == "asked@api.example.com:8443"


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        pytest.param(None, Usage(), id="42-missing"),
        pytest.param("12", Usage(), id="42-no-object"),
        pytest.param({"prompt_tokens": "12", "completion_tokens": "3"}, Usage(), id="42-strings"),
        pytest.param({"prompt_tokens": 0, "completion_tokens": 0}, Usage(), id="42-zeros"),
        pytest.param({"prompt_tokens": -1, "completion_tokens": True}, Usage(), id="42-absurd"),
        pytest.param(
            {"prompt_tokens": 12, "completion_tokens": 0},
            Usage(tokens_in=12, tokens_out=0),
            id="42-one-zero",
        ),
        pytest.param(
            {
                "prompt_tokens": 12,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(12, 4, 9, 5),
            id="43-openai",
        ),
        pytest.param(
            {"prompt_tokens": 12, "completion_tokens": 9, "prompt_cache_hit_tokens": 8},
            Usage(12, 8, 9),
            id="43-deepseek",
        ),
        pytest.param(
            {"prompt_tokens": 12, "completion_tokens": 9, "prompt_tokens_details": None},
            Usage(12, None, 9),
            id="43-null-details",
        ),
        pytest.param(
            {
                "prompt_tokens": 12,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 13},
                "completion_tokens_details": {"reasoning_tokens": 10},
            },
            Usage(12, None, 9, None),
            id="43-a-part-above-its-whole",
        ),
        pytest.param(
            {
                "prompt_tokens": 12,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 12},
                "completion_tokens_details": {"reasoning_tokens": 9},
            },
            Usage(12, 12, 9, 9),
            id="43-a-part-that-is-the-whole",
        ),
        pytest.param(
            {
                "prompt_tokens": 12,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": -1},
                "completion_tokens_details": {"reasoning_tokens": -5},
            },
            Usage(12, None, 9, None),
            id="43-negative-parts",
        ),
    ],
)
def test_what_is_not_counted_is_unknown_and_never_zero(usage: Any, read: Usage) -> None:
    assert read_usage(usage) == read


@pytest.mark.parametrize("count", [10**30, 2**62, -1, 1.5, "7", True])
def test_42_a_count_that_cannot_be_one_is_unknown(count: object) -> None:
    usage = read_usage({"prompt_tokens": count, "completion_tokens": 5})
    assert (usage.tokens_in, usage.tokens_out) == (None, 5)
