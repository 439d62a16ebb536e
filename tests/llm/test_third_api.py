"""A third API needs a module and a row of `APIS`: here a part of Anthropic's Messages."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import httpx
import pytest

from grpo_practice.core.calls import ApiName, Message, Reply, Request, Usage
from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm import api
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from tests.fakes import Answer, FakeEndpoint, FakeSleep, answers

URL = "https://api.example.com/v1"
MESSAGES = cast("ApiName", "messages")
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ASKED: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
]
REPLY: dict[str, Any] = {"type": "message", "model": "m-1", "stop_reason": "end_turn"}
REPLY |= {"content": [{"type": "text", "text": "2"}]}
REPLY |= {"usage": {"input_tokens": 12, "output_tokens": 7}}


class Messages:
    """The API, as a module would have it."""

    PATH = "/messages"

    def recognises(self, body: Any) -> bool:
        return isinstance(body, dict) and body.get("type") in ("message", "message_start")

    def request_body(self, chat: Mapping[str, Any]) -> dict[str, Any]:
        first, *messages = chat["messages"]
        tools = [tool["function"] for tool in chat.get("tools", ())]
        return {
            "model": chat["model"],
            "max_tokens": chat.get("max_tokens", 4096),
            "system": first["content"],
            "messages": [*map(self._sent, messages)],
            "tools": [{"name": t["name"], "input_schema": t["parameters"]} for t in tools],
        }

    def _sent(self, message: Message) -> dict[str, Any]:
        if message["role"] == "tool":
            result = {"tool_use_id": message["tool_call_id"], "content": message["content"]}
            return {"role": "user", "content": [{"type": "tool_result", **result}]}
        calls = [
            {"type": "tool_use", "id": c["id"], "name": c["function"]["name"]}
            | {"input": json.loads(c["function"]["arguments"])}
            for c in message.get("tool_calls", ())
        ]
        return {"role": message["role"], "content": calls or message["content"]}

    def completion(self, body: Any) -> Any:
        if body.get("error"):
            return body
        text = "".join(part["text"] for part in body["content"])
        message = {"role": "assistant", "content": text}
        finish = {"end_turn": "stop", "max_tokens": "length"}[body["stop_reason"]]
        counts = body["usage"]
        usage = {"prompt_tokens": counts["input_tokens"]}
        usage |= {"completion_tokens": counts["output_tokens"]}
        choices = [{"message": message, "finish_reason": finish}]
        return {"model": body["model"], "choices": choices, "usage": usage}

    def assemble(self, events: Iterable[tuple[str, str]], which: int | None = None) -> Any:
        for _, data in events:
            if json.loads(data)["type"] == "message_stop":
                return REPLY
        return None


@pytest.fixture(autouse=True)
def _row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "APIS", {**api.APIS, MESSAGES: Messages()})
    monkeypatch.setattr("grpo_practice.llm.http.APIS", api.APIS)


async def sent(*script: Answer, name: ApiName = MESSAGES) -> tuple[Reply | Exception, FakeEndpoint]:
    server = FakeEndpoint(answers(*script))
    to = Endpoint(URL, max_tries=2, api=name, headers={"x-api-key": "key-0123456789"})
    request = Request("m-1", {"seed": 5}, ASKED, [TOOL])
    client = Client(to, Limit(1), notice=print, transport=server.transport, sleep=FakeSleep())
    async with client:
        try:
            return await client.send(request), server
        except (EndpointError, EndpointRefusedError) as e:
            return e, server


@pytest.mark.parametrize("streamed", [False, True])
async def test_it_is_spoken_by_the_same_client(streamed: bool) -> None:
    events = "".join(f'data: {{"type": "message_{kind}"}}\n\n' for kind in ("start", "stop"))
    stream = httpx.Response(200, text=events, headers={"content-type": "text/event-stream"})
    reply, server = await sent(stream if streamed else httpx.Response(200, json=REPLY))
    assert isinstance(reply, Reply)
    assert (reply.content, reply.usage) == ("2", Usage(12, None, 7, None))
    assert server.requests[0].url == f"{URL}/messages"
    assert server.seen[0]["messages"][-1]["content"][0]["tool_use_id"] == "c1"


async def test_its_errors_are_tried_again_or_not() -> None:
    told = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    reply, server = await sent(httpx.Response(529, json=told), httpx.Response(200, json=REPLY))
    assert isinstance(reply, Reply)
    assert len(server.seen) == 2


@pytest.mark.parametrize("name", ["chat.completions", "responses"])
async def test_the_other_apis_name_it_without_knowing_it(name: ApiName) -> None:
    failed, _ = await sent(httpx.Response(200, json=REPLY), name=name)
    assert isinstance(failed, EndpointRefusedError)
    assert failed.hint == "--set agent.model.model_provider.type=messages"


async def test_it_is_answered_with_the_name_of_another_api() -> None:
    choices = [{"message": {"role": "assistant", "content": "2"}, "finish_reason": "stop"}]
    failed, _ = await sent(httpx.Response(200, json={"choices": choices}))
    assert isinstance(failed, EndpointRefusedError)
    assert failed.hint == "--set agent.model.model_provider.type=chat.completions"
