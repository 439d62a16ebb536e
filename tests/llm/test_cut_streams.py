"""Streams that end before the model is done, and endpoints that never send a finish reason."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from grpo_practice.core.errors import EndpointError
from tests.contract.endpoint.actions import completion
from tests.fakes import FakeEndpoint, answers, reply
from tests.llm.test_chat_completions import GOOD, STREAM, chunk, pieces_of, send, sse, streamed
from tests.llm.test_client import ask, connect

ROLE_ONLY = sse([chunk(role="assistant"), "[DONE]"])
"""A stream as a serial server cuts it when another request arrives."""
UNFINISHED = GOOD.replace(b'"stop"', b"null")


@pytest.mark.parametrize(
    "raw", [ROLE_ONLY, sse([chunk(reasoning_content="hm"), "[DONE]"])], ids=["role", "thought"]
)
async def test_a_stream_that_ends_without_content_and_finish_reason_is_retried(raw: bytes) -> None:
    got, server = await send(streamed(raw), streamed(GOOD))
    assert (got.content, got.tries, len(server.seen)) == ("é = 24 €", 2, 2)
    with pytest.raises(EndpointError, match=r"`stream: false`.*or `concurrency: 1`") as caught:
        await send(streamed(raw))
    assert caught.value.maybe_paid


async def test_an_empty_reply_in_one_piece_without_a_finish_reason_is_retried() -> None:
    empty = completion("")
    empty["choices"][0]["finish_reason"] = None
    got, _ = await send(httpx.Response(200, json=empty), reply("24"))
    assert (got.content, got.tries) == ("24", 2)
    got, _ = await send(reply(""))
    assert (got.content, got.finish, got.tries) == ("", "stop", 1)


async def test_a_stream_of_content_without_a_finish_reason_was_cut_if_others_have_one() -> None:
    server = FakeEndpoint(answers(streamed(GOOD), *[streamed(UNFINISHED)] * 9, streamed(GOOD)))
    endpoint = replace(STREAM, max_tries=20)
    async with connect(server, endpoint, n=2) as client:
        assert [(await client.send(ask())).tries for _ in range(3)] == [1, 10, 1]


class Serial:
    """A server that answers one request at a time and cuts the reply when another arrives."""

    def __init__(self, pieces: int) -> None:
        self._turn, self._waiting = asyncio.Lock(), 0
        self._told = [*pieces_of({"content": "x" * pieces}, [1])]

    async def __call__(self, body: dict[str, Any]) -> httpx.Response:
        self._waiting += 1
        async with self._turn:
            self._waiting -= 1
            told = list[dict[str, Any] | str]()
            for one in [*self._told, chunk("stop")]:
                told.append(one)
                await asyncio.sleep(0.001)
                if self._waiting:
                    break
            return streamed(sse([*told, "[DONE]"]))


@pytest.mark.parametrize("n", [2, 3, 8])
async def test_no_reply_is_half_where_each_new_request_cuts_the_one_under_way(n: int) -> None:
    async def rest(seconds: float) -> None:
        await asyncio.sleep(seconds / 100)

    async def one(after_s: float) -> str:
        await asyncio.sleep(after_s)
        try:
            return (await client.send(ask())).content
        except EndpointError as e:
            return str(e)

    async with connect(FakeEndpoint(Serial(20)), STREAM, n=n, sleep=rest) as client:
        got = await asyncio.gather(*(one(i * 0.01) for i in range(4 * n)))
    assert not {text for text in got if text.startswith("x")} - {"x" * 20}
    assert any("without a finish reason" in text for text in got)


async def test_an_endpoint_whose_streams_never_have_a_finish_reason_is_used() -> None:
    tries = list[int]()
    empty = iter([False] * 4 + [True] + [False] * 5)
    server = FakeEndpoint(lambda _: streamed(ROLE_ONLY if next(empty) else UNFINISHED))
    async with connect(server, STREAM) as client:
        for _ in range(6):
            got = await client.send(ask())
            assert (got.content, got.finish) == ("é = 24 €", None)
            tries.append(got.tries)
    assert tries == [1, 1, 1, 1, 2, 1]  # an empty reply is never an answer


async def test_many_requests_at_once_are_answered_without_any_finish_reason() -> None:
    server = FakeEndpoint(lambda _: streamed(UNFINISHED))
    async with connect(server, STREAM, n=8) as client:
        got = await asyncio.gather(*(client.send(ask(seed=i)) for i in range(40)))
    assert {reply.content for reply in got} == {"é = 24 €"}
    # Only the first ones, sent at once, are asked for again.
    assert len(server.seen) <= 40 + 8
