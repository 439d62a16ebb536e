"""The server side of the chat API, as third-party clients see it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from grpo_practice.core.calls import Reply, Usage
from grpo_practice.core.redact import redactor
from grpo_practice.rollout.chat_server import server
from grpo_practice.rollout.chat_server.server import ChatRequest, RequestError, read_request
from tests.late import Late

if TYPE_CHECKING:
    import openai
else:
    openai = Late("openai")

CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": "é"}'}},
    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
]
MESSAGE = {
    "role": "assistant",
    "content": "é" * 1000,
    "reasoning_content": "hm " * 100,
    "tool_calls": CALLS,
    "odd": {"kept": True},
}
REPLY = Reply(MESSAGE, "tool_calls", Usage(3, 1, 4, 2), "m-1@host", call_id=7)
Q: Any = [{"role": "user", "content": "Q"}]


@dataclass
class Server:
    port: int = 0
    answer: Reply | Exception = REPLY
    seen: list[ChatRequest] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    wait: asyncio.Event | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def client(self) -> "openai.AsyncOpenAI":
        return openai.AsyncOpenAI(base_url=self.url, api_key="none")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        asked = read_request(await request.read())
        self.seen.append(asked)
        self.came.set()
        if self.wait is not None:
            try:
                await self.wait.wait()
            except asyncio.CancelledError:
                self.gone.set()
                raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return await server.respond(request, asked, self.answer)


@asynccontextmanager
async def running(answer: Reply | Exception = REPLY) -> AsyncIterator[Server]:
    here = Server(answer=answer)

    async def models(_: web.Request) -> web.Response:
        return web.json_response(server.models("m-1", "", "m-1"))

    app = server.application(
        web.post("/v1/chat/completions", here.chat), web.get("/v1/models", models)
    )
    async with server.listening(app) as here.port:
        yield here


async def test_a_client_reads_the_reply_verbatim() -> None:
    async with running() as here, here.client as client:
        got = await client.chat.completions.create(model="m", messages=Q)
        assert [model.id async for model in client.models.list()] == ["m-1"]
    message = got.choices[0].message
    assert (message.content, message.role) == (MESSAGE["content"], "assistant")
    assert (got.id, got.model, got.choices[0].finish_reason) == ("chatcmpl-7", "m-1", "tool_calls")
    assert [call.model_dump(exclude_none=True) for call in message.tool_calls or []] == CALLS
    assert message.model_extra == {
        "reasoning_content": MESSAGE["reasoning_content"],
        "odd": {"kept": True},
    }
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.total_tokens) == (3, 7)
    assert got.usage.prompt_tokens_details is not None
    assert got.usage.prompt_tokens_details.cached_tokens == 1


async def test_a_streaming_client_puts_the_same_reply_together() -> None:
    async with running() as here, here.client as client:
        options: Any = {"include_usage": True}
        many = client.chat.completions.stream(model="m", messages=Q, stream_options=options)
        async with many as stream:
            events = [event async for event in stream]
            got = await stream.get_final_completion()
        whole = await client.chat.completions.create(model="m", messages=Q)
    assert len([event for event in events if event.type == "content.delta"]) > 2
    assert got.choices[0].message.content == MESSAGE["content"]
    assert got.choices[0].finish_reason == "tool_calls"
    calls = got.choices[0].message.tool_calls or []
    assert [(c.id, c.function.name, c.function.arguments) for c in calls] == [
        ("a", "f", '{"x": "é"}'),
        ("b", "g", "{}"),
    ]
    assert got.usage == whole.usage
    assert (got.choices[0].message.model_extra or {})["reasoning_content"] == "hm " * 100


async def test_a_stream_tells_the_usage_only_where_that_is_wanted() -> None:
    async with running(Reply({"role": "assistant", "content": "x"})) as here, here.client as client:
        plain = await client.chat.completions.create(model="m", messages=Q, stream=True)
        chunks = [chunk async for chunk in plain]
        whole = await client.chat.completions.create(model="m", messages=Q)
    assert all(chunk.choices for chunk in chunks)
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert whole.usage is None  # unknown, never 0


async def test_an_error_is_told_as_client_libraries_know_it_and_asked_once() -> None:
    redactor.know(["a-secret-of-mine"])
    error = RequestError(
        "too long: a-secret-of-mine", param="messages", code="context_length_exceeded"
    )
    async with running(error) as here, here.client as client:
        with pytest.raises(openai.BadRequestError) as told:
            await client.chat.completions.create(model="m", messages=Q, stream=True)
        assert (told.value.code, told.value.param) == ("context_length_exceeded", "messages")
        assert "too long: ***" in str(told.value)
        here.answer = RequestError("down", status=502, kind="server_error")
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="m", messages=Q)
        here.answer = KeyError("a bug")
        with pytest.raises(openai.InternalServerError, match="KeyError while"):
            await client.chat.completions.create(model="m", messages=Q)
        assert len(here.seen) == 3  # the library was told not to try again


async def test_what_is_not_spoken_says_what_is() -> None:
    async with running() as here, here.client as client:
        with pytest.raises(openai.NotFoundError, match="only POST chat/completions, POST resp"):
            await client.completions.create(model="m", prompt="Q")
        with pytest.raises(openai.NotFoundError, match="nothing at /embeddings"):
            await client.embeddings.create(model="m", input="Q")
        async with aiohttp.ClientSession() as session:
            answer = await session.get(f"{here.url}/chat/completions")
            assert answer.status == 405
            assert "GET is not allowed" in (await answer.json())["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:9"}, 200),
        ({"Host": "[::1]:9"}, 200),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
async def test_only_who_means_this_server_is_served(headers: dict[str, str], status: int) -> None:
    async with running() as here, aiohttp.ClientSession() as session:
        answer = await session.get(f"{here.url}/models", headers=headers)
        assert answer.status == status
        assert ("error" in await answer.json()) == (status != 200)


async def test_a_request_of_any_size_is_no_danger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_BODY", 1000)
    async with running() as here, aiohttp.ClientSession() as session:
        answer = await session.post(f"{here.url}/chat/completions", data=b"x" * 2000)
        assert answer.status == 413
        assert "larger than" in (await answer.json())["error"]["message"]


async def test_who_is_gone_is_not_waited_for() -> None:
    async with running() as here:
        here.wait = asyncio.Event()
        async with aiohttp.ClientSession() as session:
            asking = asyncio.create_task(
                session.post(f"{here.url}/chat/completions", json={"messages": Q})
            )
            await here.came.wait()
            asking.cancel()
            await asyncio.wait([asking])
        async with asyncio.timeout(60):
            await here.gone.wait()


def test_1_45_lone_surrogates_are_replaced_at_the_border() -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "a\ud800b"}]}).encode()
    assert read_request(body).messages[0]["content"] == "a�b"
