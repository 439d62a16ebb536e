"""The Responses API with any part of a reply, a stream or a request replaced or missing."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ContentFilterError
from grpo_practice.llm import responses, served_responses
from grpo_practice.llm.chat_completions import read_reply
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.http_response import OtherApiError, Response
from grpo_practice.llm.retry_policy import decide
from grpo_practice.rollout.agents.simple import outcome_of
from grpo_practice.rollout.chat_server import server
from tests.llm.test_responses import (
    CALL,
    CALLED,
    CONVERSATIONS,
    DELTAS,
    DONE,
    FUNCTION,
    MESSAGE,
    TEXT,
    THOUGHT,
    URL,
    answer,
    json_reply,
    sent,
)

JUNK: tuple[Any, ...] = (None, 3, True, "x", [], {}, [[]], {"a": []}, [{"type": "message"}])
COMMENT = MESSAGE | {"phase": "commentary", "content": [TEXT | {"text": "I look it up."}]}
FINAL = MESSAGE | {"phase": "final_answer"}


def bent(value: Any) -> Iterator[Any]:
    """The value with each part of it replaced by each piece of junk, and without each key."""
    yield from JUNK
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            without = copy.copy(value)
            del without[key]
            yield without
            for inner in bent(value[key]):
                other: Any = copy.copy(value)
                other[key] = inner
                yield other


def read(body: Any) -> None:
    """Read a reply, hand it to a client, and send it back, as a rollout does."""
    try:
        chat = responses.completion(body)
    except (ValueError, OtherApiError):
        return
    response = Response(200, {}, "", chat, URL)
    if decide(response, {}, Endpoint(URL, api="responses")) is not None:
        return
    reply = read_reply(response, asked="m", tries=1, seconds=1.0)
    outcome_of(reply)
    choices = [{"message": reply.message, "finish_reason": reply.finish}]
    told = served_responses.response({"model": "m", "choices": choices}, {}, "resp_1")
    assert list(served_responses.events(told, 8))
    responses.request_body({"messages": [reply.message]})


def test_no_reply_breaks_more_than_its_request() -> None:
    for body in bent(answer(THOUGHT, COMMENT, CALLED)):
        read(body)


@pytest.mark.parametrize("final", [DONE, DONE | {"response": answer()}], ids=["whole", "empty"])
def test_no_stream_breaks_more_than_its_request(final: dict[str, Any]) -> None:
    events = [*DELTAS, final]
    for n, event in enumerate(events):
        for other in bent(event):
            told = [*events[:n], other, *events[n + 1 :]]
            try:
                body = responses.assemble(("", json.dumps(one)) for one in told)
            except OtherApiError:
                continue
            read(body)


ASKED: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "tools": [{"type": "function", **FUNCTION}],
    "tool_choice": {"type": "function", "name": "add"},
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "x", "schema": {}}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "input": [THOUGHT, *(item for items in CONVERSATIONS.values() for item in items)],
}


def test_no_request_of_a_client_is_more_than_an_error_of_its_own() -> None:
    for given in bent(ASKED):
        if isinstance(given, dict):
            try:
                asked = server.chat_request(server.responses_body(given))
            except server.RequestError:
                continue
            responses.request_body({"messages": asked.messages, **asked.settings})


@pytest.mark.parametrize(
    "code", ["invalid_prompt", "bio_policy", "misalignment_policy_violation", "content_filter"]
)
async def test_a_response_that_a_policy_stopped_is_not_tried_again(code: str) -> None:
    failed = answer(status="failed", error={"code": code, "message": "It was flagged."})
    error, server_, _ = await sent(json_reply(failed))
    assert isinstance(error, ContentFilterError)
    assert len(server_.seen) == 1


async def test_the_answer_is_the_text_that_the_model_marks_as_such() -> None:
    reply, _, _ = await sent(json_reply(answer(COMMENT, FINAL)))
    assert isinstance(reply, Reply)
    assert reply.content == "2"
    assert responses.request_body({"messages": [reply.message]})["input"] == [COMMENT, FINAL]
    reply, _, _ = await sent(json_reply(answer(COMMENT, MESSAGE)))
    assert isinstance(reply, Reply)
    assert reply.content == "I look it up.\n\n2"


@pytest.mark.parametrize(
    "change", [{"content": "3"}, {"tool_calls": [CALL | {"id": "c2"}]}, {"tool_calls": None}]
)
def test_a_message_that_a_program_changed_goes_out_as_changed(change: dict[str, Any]) -> None:
    message = responses.message_of([THOUGHT, MESSAGE, CALLED])
    assert responses.request_body({"messages": [message]})["input"][0]["type"] == "reasoning"
    items = responses.request_body({"messages": [message | change]})["input"]
    assert items[0] == {"role": "assistant", "content": change.get("content", "2")}
    assert [item["call_id"] for item in items[1:]] == [
        call["id"] for call in change.get("tool_calls", [CALL]) or ()
    ]


def test_an_assistant_s_text_needs_no_type() -> None:
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "2"}]}
    (message,) = served_responses.chat_body({"input": [said]})["messages"]
    assert message == {"role": "assistant", "content": "2"}
