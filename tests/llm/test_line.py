"""A streamed request may wait in the line of a server that works; in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from typing_extensions import override

from grpo_practice.core.calls import Reply, Request
from grpo_practice.core.errors import EndpointError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from tests.contract.endpoint.actions import completion
from tests.llm.virtual import virtual

ENDPOINT = Endpoint("http://127.0.0.1:1/v1", timeout_s=60, max_tries=1, stream=True)
ROLE = b'data: {"choices": [{"index": 0, "delta": {"role": "assistant"}}]}\n\n'
PART = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'
LAST = (
    b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
)


class Serial(httpx.AsyncBaseTransport):
    """A server with one slot; an event every 10 s, role and comments at once."""

    def __init__(self, events: int, *, stream: bool = True, dies_after: int | None = None) -> None:
        self._events, self._stream, self._left = events, stream, dies_after
        self._slot = asyncio.Lock()

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._stream:
            headers = {"content-type": "text/event-stream"}
            return httpx.Response(200, headers=headers, stream=Events(self._answer()))
        async for _ in self._answer():
            pass
        return httpx.Response(200, json=completion("x"))

    async def _answer(self) -> AsyncIterator[bytes]:
        yield ROLE
        for waited in range(10_000):
            if not self._slot.locked():
                break
            yield b": ping\n\n" if waited % 2 else b""
            await asyncio.sleep(5)
        async with self._slot:
            for _ in range(self._events):
                await asyncio.sleep(10)
                if self._left is not None:
                    self._left -= 1
                    if self._left < 0:
                        await asyncio.sleep(1e6)
                yield PART
            yield LAST


class Events(httpx.AsyncByteStream):
    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._parts:
            yield part


def ask(
    server: Serial, endpoint: Endpoint = ENDPOINT, n: int = 8, limit_s: float | None = None
) -> list[Any]:
    async def story() -> list[Any]:
        async with Client(endpoint, Limit(n), notice=lambda _: None, transport=server) as client:
            requests = [
                Request("m", {"seed": i}, [{"role": "user", "content": "?"}]) for i in range(n)
            ]
            sent = (client.send(request, limit_s=limit_s) for request in requests)
            return await asyncio.gather(*sent, return_exceptions=True)

    return virtual(story())


@pytest.mark.parametrize("limit_s", [None, 50.0])
def test_a_request_may_wait_as_long_as_the_server_answers_others(limit_s: float | None) -> None:
    replies = ask(Serial(4), limit_s=limit_s)
    assert all(isinstance(reply, Reply) for reply in replies), replies
    longest = max(replies, key=lambda reply: reply.seconds)
    assert longest.seconds > 8 * 40 > 5 * ENDPOINT.timeout_s
    assert all(29 <= reply.own_s <= 31 for reply in replies), "from the first event to the last"


def test_a_server_that_sends_only_comments_does_not_work() -> None:
    replies = ask(Serial(4, dies_after=6))
    answered = [reply for reply in replies if isinstance(reply, Reply)]
    lost = [reply for reply in replies if isinstance(reply, EndpointError)]
    assert (len(answered), len(lost)) == (1, 7)
    assert all(
        "from the last part of any other reply: raise `extra_args.timeout`" in str(e) for e in lost
    )


def test_an_answer_has_its_time_from_its_first_event() -> None:
    (reply,) = ask(Serial(6), n=1)
    assert isinstance(reply, Reply)
    assert (reply.seconds, reply.waited_s) == (60, 10)
    (lost,) = ask(Serial(9), n=1)
    assert isinstance(lost, EndpointError)
    assert lost.maybe_paid


def test_without_a_stream_the_wait_counts_and_the_message_names_the_settings() -> None:
    replies = ask(Serial(4, stream=False), replace(ENDPOINT, stream=False))
    lost = [str(reply) for reply in replies if isinstance(reply, EndpointError)]
    assert len(lost) == 7
    told = "the wait in the server's line counts, because the reply is not streamed"
    settings = ("`stream: true`", "`concurrency`", "`rollout_concurrency`", "`extra_args.timeout`")
    assert all(told in text and all(key in text for key in settings) for text in lost)


def test_a_stream_that_the_server_does_not_send_as_one_is_limited_as_a_whole() -> None:
    replies = ask(Serial(4, stream=False))
    assert [reply.waited_s for reply in replies if isinstance(reply, Reply)] == [0]
