"""The Responses API: requests, replies and streams, against a stand-in and others' code."""

import json
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from grpo_practice.core.calls import RESPONSE_ITEMS, Reply, Request, Usage
from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm import responses, served_responses
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from tests.fakes import Answer, FakeEndpoint, FakeSleep, answers
from tests.late import Late

openai_types = Late("openai.types.responses")
converter = Late("agents.models.chatcmpl_converter")

URL = "https://api.example.com/v1"
FUNCTION = {"name": "add", "description": "Add.", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": FUNCTION}
CALL: dict[str, Any] = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a":1}'},
}
ASK = Request("m-1", {"max_tokens": 64, "seed": 5}, [{"role": "user", "content": "1+1?"}], [TOOL])

TEXT: dict[str, Any] = {"type": "output_text", "text": "2", "annotations": []}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
}
MESSAGE |= {"content": [TEXT]}
CALLED: dict[str, Any] = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "add"}
CALLED |= {"arguments": '{"a":1}', "status": "completed"}
THOUGHT: dict[str, Any] = {
    "id": "rs_1",
    "type": "reasoning",
    "encrypted_content": "gAAA",
    "status": None,
}
THOUGHT |= {"summary": [{"type": "summary_text", "text": "Adding."}]}
USAGE: dict[str, Any] = {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19}
USAGE |= {"input_tokens_details": {"cached_tokens": 4}}
USAGE |= {"output_tokens_details": {"reasoning_tokens": 5}}


def answer(*output: Any, **other: Any) -> dict[str, Any]:
    body = {"id": "resp_1", "object": "response", "status": "completed", "error": None}
    return body | {"model": "m-1", "output": [*output], "usage": USAGE} | other


def json_reply(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


def stream(events: Iterable[dict[str, Any]]) -> httpx.Response:
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    headers = {"content-type": "text/event-stream"}
    return httpx.Response(200, content="".join(lines).encode(), headers=headers)


async def sent(
    *script: Answer, ask: Request = ASK, **endpoint: Any
) -> tuple[Reply | Exception, FakeEndpoint, list[str]]:
    """What a request comes to, what the endpoint saw, and what the user was told."""
    server, told = FakeEndpoint(answers(*script)), list[str]()
    to = Endpoint(URL, max_tries=2, api="responses", section="s.model_provider", **endpoint)
    client = Client(to, Limit(1), notice=told.append, transport=server.transport, sleep=FakeSleep())
    async with client:
        try:
            return await client.send(ask), server, told
        except (EndpointError, EndpointRefusedError) as e:
            return e, server, told


async def test_a_request_is_sent_in_the_form_of_the_api() -> None:
    params = {
        "temperature": 0.5,
        "max_tokens": 64,
        "seed": 5,
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
        "tool_choice": {"type": "function", "function": {"name": "add"}},
    }
    picture: Any = {"type": "image_url", "image_url": {"url": "data:,x", "detail": "low"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "1+1?"}, picture]},
        {"role": "assistant", "content": "Let me add.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]
    reply, server, _ = await sent(
        json_reply(answer(MESSAGE)),
        ask=Request("m-1", params, messages, [TOOL]),
        unhashed={"user": "u"},
    )
    assert isinstance(reply, Reply)
    assert server.requests[0].url == f"{URL}/responses"
    assert server.seen[0] == {
        "model": "m-1",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "1+1?"},
                    {"type": "input_image", "image_url": "data:,x", "detail": "low"},
                ],
            },
            {"role": "assistant", "content": "Let me add."},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ],
        "tools": [{"type": "function", **FUNCTION, "strict": False}],
        "tool_choice": {"type": "function", "name": "add"},
        "temperature": 0.5,
        "max_output_tokens": 64,
        "seed": 5,
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "x", "schema": {}}},
        "user": "u",
    }


async def test_a_reply_is_read_with_its_calls_reasoning_and_usage() -> None:
    reply, _, _ = await sent(json_reply(answer(THOUGHT, MESSAGE, CALLED)))
    assert isinstance(reply, Reply)
    kept = {key: value for key, value in THOUGHT.items() if value is not None}
    assert reply.message == {
        "role": "assistant",
        "content": "2",
        "reasoning_content": "Adding.",
        "tool_calls": [CALL],
        "response_items": [kept, MESSAGE, CALLED],
    }
    assert (reply.finish, reply.answered_by) == ("tool_calls", "m-1@api.example.com")
    assert reply.usage == Usage(12, 4, 7, 5)


async def test_reasoning_goes_back_with_the_next_request_word_for_word() -> None:
    first, _, _ = await sent(json_reply(answer(THOUGHT, CALLED)))
    assert isinstance(first, Reply)
    result = {"role": "tool", "tool_call_id": "c1", "content": "2"}
    then = Request("m-1", {}, [*ASK.messages, first.message, result], [TOOL])
    _, server, _ = await sent(json_reply(answer(MESSAGE)), ask=then)
    kept = {key: value for key, value in THOUGHT.items() if value is not None}
    assert server.seen[0]["input"][1:3] == [kept, CALLED]


async def test_reasoning_that_a_stateless_endpoint_could_not_read_is_left_out() -> None:
    bare = {"id": "rs_1", "type": "reasoning", "summary": []}
    reply, _, _ = await sent(json_reply(answer(bare, CALLED)))
    assert isinstance(reply, Reply)
    # Nor does the call go back with an id that belongs to this reasoning.
    assert reply.message == {"role": "assistant", "content": None, "tool_calls": [CALL]}


@pytest.mark.parametrize(
    ("changes", "finish"),
    [
        ({}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
        ),
        ({"status": "incomplete", "incomplete_details": None}, "length"),
    ],
)
async def test_the_reason_of_an_incomplete_response_is_its_finish(
    changes: dict[str, Any], finish: str
) -> None:
    reply, _, _ = await sent(json_reply(answer(MESSAGE, **changes)))
    assert isinstance(reply, Reply)
    assert reply.finish == finish


async def test_a_refusal_is_no_text() -> None:
    refused = MESSAGE | {"content": [{"type": "refusal", "refusal": "I will not."}]}
    reply, _, _ = await sent(json_reply(answer(refused)))
    assert isinstance(reply, Reply)
    assert (reply.content, reply.message["refusal"]) == ("", "I will not.")


DELTAS: list[dict[str, Any]] = [
    {"type": "response.created", "response": answer(status="in_progress")},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "2"},
    {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
]
DONE: dict[str, Any] = {"type": "response.completed", "response": answer(MESSAGE)}


@pytest.mark.parametrize(
    "events",
    [
        [*DELTAS, DONE],
        [*reversed(DELTAS), DONE],
        [*DELTAS, DONE | {"response": answer()}],
        [*reversed(DELTAS), DONE | {"response": answer()}],
        [*DELTAS, DONE, {"type": "error", "message": "late"}],
    ],
    ids=["whole", "out of order", "empty at the end", "both", "an error after the end"],
)
async def test_a_stream_is_its_last_response(events: list[dict[str, Any]]) -> None:
    reply, server, _ = await sent(stream(events), stream=True)
    assert isinstance(reply, Reply)
    assert (reply.content, reply.usage) == ("2", Usage(12, 4, 7, 5))
    assert server.seen[0]["stream"] is True
    assert "stream_options" not in server.seen[0]


CHUNK: dict[str, Any] = {"object": "chat.completion.chunk", "type": "", "choices": []}
UNUSABLE = {
    "cut": stream(DELTAS),
    "cut in arguments": stream([DELTAS[0], {"type": "response.output_item.added"}]),
    "an item that never ended": stream([*DELTAS[:2], DONE | {"response": answer()}]),
    "an error in the stream": stream([*DELTAS, {"type": "error", "message": "overloaded"}]),
    "failed": json_reply(answer(status="failed", error={"code": "server_error", "message": "no"})),
    "queued": json_reply(answer(status="queued")),
    "no output": json_reply({"object": "response"}),
    "a list": json_reply([1]),
    "reasoning alone": json_reply(answer(THOUGHT)),
    "two calls with one id": json_reply(answer(CALLED, CALLED)),
    "a call without an id": json_reply(answer(CALLED | {"call_id": None})),
}


@pytest.mark.parametrize("response", UNUSABLE.values(), ids=UNUSABLE)
async def test_an_unusable_reply_fails_this_request_alone(response: httpx.Response) -> None:
    failed, server, _ = await sent(response)
    assert isinstance(failed, EndpointError)
    assert failed.maybe_paid
    assert len(server.seen) == 2  # it was tried again


async def test_an_empty_message_is_an_empty_answer() -> None:
    reply, _, _ = await sent(json_reply(answer(THOUGHT, MESSAGE | {"content": []})))
    assert isinstance(reply, Reply)
    assert (reply.content, reply.finish) == ("", "stop")


async def test_too_large_a_response_is_not_read_to_its_end() -> None:
    big = MESSAGE | {"content": [TEXT | {"text": "x" * 3_000_000}]}
    failed, server, _ = await sent(json_reply(answer(big)), max_reply_bytes=2**20)
    assert isinstance(failed, EndpointError)
    assert "1 MiB" in str(failed)
    assert len(server.seen) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_chat_completions_instead_of_responses_stop_the_run(streamed: bool) -> None:
    choice = {"message": {"role": "assistant", "content": "2"}, "finish_reason": "stop"}
    body = {"object": "chat.completion", "choices": [choice]}
    response = stream([CHUNK]) if streamed else json_reply(body)
    failed, server, _ = await sent(response)
    assert isinstance(failed, EndpointRefusedError)
    assert "the API `chat.completions`" in str(failed)
    assert failed.hint == "--set s.model_provider.type=chat.completions"
    assert len(server.seen) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_responses_instead_of_chat_completions_stop_the_run(streamed: bool) -> None:
    server = FakeEndpoint(answers(stream(DELTAS) if streamed else json_reply(answer(MESSAGE))))
    to = Endpoint(URL)
    async with Client(to, Limit(1), notice=print, transport=server.transport) as client:
        with pytest.raises(EndpointRefusedError, match="the API `responses`") as e:
            await client.send(ASK)
    assert e.value.hint == "--set agent.model.model_provider.type=responses"


NEWER = (
    "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions."
    " Please use /v1/responses instead, or set reasoning_effort to 'none'."
)
PRO = "This model is only supported in v1/responses and not in v1/chat/completions."


@pytest.mark.parametrize(("status", "said"), [(400, NEWER), (404, PRO)])
async def test_an_endpoint_that_wants_responses_gets_a_hint_to_type(status: int, said: str) -> None:
    error = {"error": {"message": said, "type": "invalid_request_error", "param": None}}
    server = FakeEndpoint(answers(json_reply(error, status)))
    async with Client(Endpoint(URL), Limit(1), notice=print, transport=server.transport) as client:
        with pytest.raises(EndpointRefusedError) as e:
            await client.send(ASK)
    assert e.value.hint == "--set agent.model.model_provider.type=responses"
    assert len(server.seen) == 1


async def test_an_endpoint_without_responses_gets_a_hint_to_type() -> None:
    failed, _, _ = await sent(json_reply({"detail": "Not Found"}, 404))
    assert isinstance(failed, EndpointRefusedError)
    assert failed.hint is not None
    assert "--set s.model_provider.type=chat.completions" in failed.hint


async def test_keys_that_an_endpoint_rejects_are_left_out_from_then_on() -> None:
    def unknown(name: str) -> httpx.Response:
        said = {"message": f"Unknown parameter: '{name}'.", "param": name}
        return json_reply({"error": said | {"code": "unknown_parameter"}}, 400)

    reply, server, told = await sent(
        unknown("seed"), unknown("include"), unknown("store"), json_reply(answer(MESSAGE))
    )
    assert isinstance(reply, Reply)
    assert not reply.seeded
    assert not {"seed", "include", "store"} & server.seen[-1].keys()
    assert len(told) == 3


CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "a question": [{"role": "user", "content": "1+1?"}],
    "a call and its result": [
        {"role": "user", "content": "1+1?"},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"role": "user", "content": "Thanks"},
    ],
    "two calls with a text": [
        {"role": "user", "content": "1+1?"},
        MESSAGE | {"content": [TEXT | {"text": "Let me see."}]},
        CALLED,
        CALLED | {"call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
    ],
    "a picture": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": "data:,x", "detail": "auto"},
            ],
        }
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("items", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_client_s_items_are_read_as_the_agents_sdk_reads_them(items: list[Any]) -> None:
    theirs = converter.Converter.items_to_messages(items)
    ours = served_responses.chat_body({"input": items})["messages"]
    plain = [{k: v for k, v in m.items() if v is not None} for m in ours]
    assert plain == [{k: v for k, v in m.items() if v is not None} for m in theirs]


@pytest.mark.parametrize("items", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_conversation_survives_the_way_there_and_back(items: list[Any]) -> None:
    there = responses.request_body(served_responses.chat_body({"input": items}))
    again = served_responses.chat_body(there)["messages"]
    assert again == served_responses.chat_body({"input": items})["messages"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "2"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "x", "reasoning_content": "y", "tool_calls": [CALL]},
        {"role": "assistant", "content": None, "refusal": "no"},
    ],
)
def test_our_responses_are_those_of_openai_s_types(message: dict[str, Any]) -> None:
    chat = {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}
    body = served_responses.response(chat, {}, "resp_1")
    openai_types.Response.model_validate(body, strict=True)
    read = responses.completion(body)["choices"][0]["message"]
    assert {k: v for k, v in read.items() if k != RESPONSE_ITEMS} == message
    # The same message, if it is read from the stream.
    events = [("", json.dumps(event)) for event in served_responses.events(body, 1)]
    assert responses.assemble(iter(events)) == body


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"input": 3}, "'input' must be text"),
        ({"input": "x", "background": True}, "'background'"),
        ({"input": "x", "conversation": "conv_1"}, "'conversation'"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "'web_search'"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "'item_reference'"),
    ],
)
def test_a_client_s_request_that_cannot_be_served_is_refused(
    body: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        served_responses.chat_body(body)
