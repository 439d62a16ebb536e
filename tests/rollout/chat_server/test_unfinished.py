"""Requests that are begun and not ended do not stay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web

from grpo_practice.core.text import LOOPBACK
from grpo_practice.rollout.chat_server import server, unfinished
from tests.processes import HANG_S

POST = b"POST /v1/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n"
HALVES = [
    b"",
    b"POST /v1/ec",
    b"POST /v1/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\n",
    POST + b"h",
]

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def echoing(wait: asyncio.Event | None = None) -> AsyncIterator[int]:
    """A server that sends a request's body back; its port."""

    async def echo(request: web.Request) -> web.Response:
        if wait is not None:
            await wait.wait()
        return web.Response(body=await request.read())

    app = server.application(web.post("/v1/echo", echo))
    async with asyncio.timeout(HANG_S), server.listening(app) as port:
        yield port


@asynccontextmanager
async def client(port: int) -> AsyncIterator[Pair]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answered(reader: asyncio.StreamReader) -> bytes:
    await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(2)


@pytest.mark.parametrize("half", HALVES)
async def test_a_request_that_does_not_come_whole_is_closed_and_told(
    half: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "RECEIVE_S", 0.05)
    async with echoing() as port, client(port) as (reader, writer):
        writer.write(half)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


async def test_the_second_request_of_a_connection_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with echoing() as port, client(port) as (reader, writer):
        writer.write(POST + b"hi")
        assert await answered(reader) == b"hi"
        monkeypatch.setattr(unfinished, "RECEIVE_S", 0.05)
        writer.write(POST)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


async def test_a_connection_is_not_kept_for_ever_after_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "IDLE_S", 0.05)
    async with echoing() as port, client(port) as (reader, writer):
        writer.write(POST + b"hi" + POST[:9])  # the half that comes early does not hold it open
        assert await answered(reader) == b"hi"
        assert await reader.read() == b""


async def test_an_answer_takes_as_long_as_it_takes_and_idle_connections_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "RECEIVE_S", 0.05)
    wait = asyncio.Event()
    async with echoing(wait) as port, client(port) as (reader, writer):
        writer.write(POST + b"hi")
        # Whoever comes later is closed: the time of the first one would be over, too.
        for _ in range(2):
            async with client(port) as (other, _):
                assert (await other.read()).startswith(b"HTTP/1.1 408 ")
        wait.set()
        assert await answered(reader) == b"hi"
        async with client(port) as (other, _):
            assert (await other.read()).startswith(b"HTTP/1.1 408 ")
        writer.write(POST + b"ho")
        assert await answered(reader) == b"ho"


async def test_in_a_crowd_the_oldest_go_and_a_whole_request_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "CROWD", 8)
    monkeypatch.setattr(unfinished, "CROWDED_S", 0.0)
    async with echoing() as port, AsyncExitStack() as stack:
        held = [await stack.enter_async_context(client(port)) for _ in range(20)]
        for _, writer in held:
            writer.write(b"POST /v1/ec")
        for reader, _ in held[:12]:
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        reader, writer = held[-1]  # slow, and honest
        writer.write(POST.removeprefix(b"POST /v1/ec") + b"hi")
        assert await answered(reader) == b"hi"


async def test_many_honest_clients_at_once_are_all_answered() -> None:
    async with echoing() as port, AsyncExitStack() as stack:
        clients = [stack.enter_async_context(client(port)) for _ in range(400)]
        held = [await coming for coming in clients]
        for _, writer in held:
            writer.write(POST + b"hi")
        assert [await answered(reader) for reader, _ in held] == [b"hi"] * 400
