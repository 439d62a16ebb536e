"""Whatever comes on a connection besides an answer is not the answer to the next request."""

import asyncio

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from httpx_aiohttp import AiohttpTransport

from grpo_practice.llm import connections
from grpo_practice.llm.client import Client
from tests.llm.test_http import ASK, BODY, OK, answer, connect, read_request, serving
from tests.processes import HANG_S

WRONG = b'{"choices":[{"message":{"role":"assistant","content":"of another"}}]}'


def connector_of(client: Client) -> aiohttp.BaseConnector:
    transport = client._http._client._transport
    assert isinstance(transport, AiohttpTransport)
    assert isinstance(transport.client, aiohttp.ClientSession)
    assert transport.client.connector is not None
    return transport.client.connector


class Twice:
    """A server that sends another reply behind the first one of a connection, when it may."""

    def __init__(self) -> None:
        self.connections, self.may_follow, self.followed = 0, asyncio.Event(), asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await read_request(reader)
        writer.write(OK % len(BODY) + BODY)
        await self.may_follow.wait()
        writer.write(OK % len(WRONG) + WRONG)
        await writer.drain()
        self.followed.set()
        await reader.read()


async def idle(client: Client) -> ResponseHandler:
    """Return the one connection that has rested, once there is one."""
    async with asyncio.timeout(HANG_S):
        while not connector_of(client)._conns:  # noqa: ASYNC110 - nothing else says so
            await asyncio.sleep(0.001)
    [[(found, _)]] = connector_of(client)._conns.values()
    return found


async def test_what_comes_on_an_idle_connection_is_not_the_next_answer() -> None:
    server = Twice()
    async with serving(server) as address, connect(f"http://{address}/v1") as client:
        first = await client.send(ASK)
        connection = await idle(client)
        server.may_follow.set()
        async with asyncio.timeout(HANG_S):
            await server.followed.wait()
            while not connection.should_close:  # noqa: ASYNC110 - nothing else says that it came
                await asyncio.sleep(0)
        second = await client.send(ASK)
    assert (first.content, second.content, server.connections) == ("24", "24", 2)


async def test_what_may_come_behind_an_answer_is_waited_for_before_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "REST_S", HANG_S)
    server = Twice()
    async with serving(server) as address, connect(f"http://{address}/v1") as client:
        await client.send(ASK)
        server.may_follow.set()
        second = await client.send(ASK)
    assert (second.content, server.connections) == ("24", 2)


async def test_a_connection_is_used_again_after_its_rest() -> None:
    made = 0

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        await answer(reader, writer)

    async with serving(counted) as address, connect(f"http://{address}/v1") as client:
        for _ in range(3):
            await client.send(ASK)
            await idle(client)
    assert made == 1


async def test_few_connections_rest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REST_S", HANG_S)
    monkeypatch.setattr(connections, "MOST_RESTING", 2)
    async with serving(answer) as address, connect(f"http://{address}/v1") as client:
        for _ in range(3):
            await client.send(ASK)
        await idle(client)
