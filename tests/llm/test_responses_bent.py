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
from tests.late import Late
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

pydantic = Late("pydantic")
openai_types = Late("openai.types.responses")
create_params = Late("openai.types.responses.response_create_params")

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


def test_what_is_sent_has_the_types_of_openai_s_client() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,x", "detail": "low"}}
    file = {"type": "file", "file": {"file_data": "x", "filename": "a.pdf"}}
    result = {"role": "tool", "tool_call_id": "c1", "content": "2"}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "q"}, picture, file]},
        {"role": "assistant", "content": "Let me", "tool_calls": [CALL]},
        result,
        responses.message_of([THOUGHT, COMMENT, CALLED]),
        result,
        {"role": "system", "content": "later"},
    ]
    settings: dict[str, Any] = {
        "reasoning_effort": "low",
        "reasoning_summary": "auto",
        "verbosity": "low",
    }
    settings |= {"max_tokens": 9, "top_logprobs": 2, "logprobs": True}
    tools = [{"type": "function", "function": FUNCTION}]
    body = responses.request_body({"model": "m", "messages": messages, "tools": tools, **settings})
    whole = create_params.ResponseCreateParamsNonStreaming
    pydantic.TypeAdapter(whole).validate_python(body)
    assert body.keys() <= whole.__annotations__.keys() | (
        create_params.ResponseCreateParamsBase.__annotations__.keys()
    )
    # Lists in a request are checked when they are read.
    items = pydantic.TypeAdapter(openai_types.ResponseInputParam)
    assert len(list(items.validate_python(body["input"]))) == 9


def test_what_is_streamed_has_the_types_of_openai_s_client() -> None:
    adapter = pydantic.TypeAdapter(openai_types.ResponseStreamEvent)
    message = responses.message_of([THOUGHT, MESSAGE, CALLED])
    choices = [{"message": message, "finish_reason": "length"}]
    told = served_responses.response({"model": "m", "choices": choices}, {}, "resp_1")
    kinds = [adapter.validate_python(event).type for event in served_responses.events(told, 1)]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.incomplete"


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


@pytest.mark.parametrize("param", [None, "include"])
async def test_a_model_that_does_not_reason_is_not_asked_for_reasoning(param: str | None) -> None:
    said = "Encrypted content is not supported with this model."
    told = {"message": said, "type": "invalid_request_error", "param": param, "code": None}
    refused = json_reply({"error": told}, 400)
    reply, server_, _ = await sent(refused, json_reply(answer(MESSAGE)))
    assert isinstance(reply, Reply)
    assert ["include" in body for body in server_.seen] == [True, False]
