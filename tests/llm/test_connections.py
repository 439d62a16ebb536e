"""Whatever comes on a connection besides an answer is not the answer to the next request."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from httpx_aiohttp import AiohttpTransport

from grpo_practice.llm import connections
from grpo_practice.llm.client import Client
from tests.llm.test_http import ASK, BODY, OK, PEM, connect, read_request, serving
from tests.processes import HANG_S

WRONG = b'{"choices":[{"message":{"role":"assistant","content":"of another"}}]}'


def connector_of(client: Client) -> aiohttp.BaseConnector:
    transport = client._http._client._transport
    assert isinstance(transport, AiohttpTransport)
    assert isinstance(transport.client, aiohttp.ClientSession)
    assert transport.client.connector is not None
    return transport.client.connector


class Server:
    """Answers every request; with `surplus`, another reply follows its first one, when it may."""

    def __init__(self, *, surplus: bool = True) -> None:
        self.connections, self.may_follow, self._surplus = 0, asyncio.Event(), surplus

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            await read_request(reader)
            writer.write(OK % len(BODY) + BODY)
            if self._surplus:
                self._surplus = False
                await self.may_follow.wait()
                writer.write(OK % len(WRONG) + WRONG)
                await writer.drain()


@asynccontextmanager
async def asking(server: Server) -> AsyncIterator[Client]:
    async with serving(server) as address, connect(f"http://{address}/v1") as client:
        yield client


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(HANG_S):
        while not is_so():  # noqa: ASYNC110 - nothing else says that it is
            await asyncio.sleep(0.001)


async def test_what_comes_on_an_idle_connection_is_not_the_next_answer() -> None:
    server = Server()
    async with asking(server) as client:
        first = await client.send(ASK)
        idle = connector_of(client)._conns
        await until(lambda: idle)
        [[(connection, _)]] = idle.values()
        server.may_follow.set()
        await until(lambda: connection.should_close)
        second = await client.send(ASK)
    assert (first.content, second.content, server.connections) == ("24", "24", 2)


async def test_what_may_come_behind_an_answer_is_waited_for_before_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "REST_S", HANG_S)
    server = Server()
    async with asking(server) as client:
        await client.send(ASK)
        server.may_follow.set()
        second = await client.send(ASK)
    assert (second.content, server.connections) == ("24", 2)


async def test_a_connection_is_used_again_after_its_rest() -> None:
    server = Server(surplus=False)
    async with asking(server) as client:
        for _ in range(3):
            await client.send(ASK)
            await until(lambda: connector_of(client)._conns)
    assert server.connections == 1


async def test_few_connections_rest_with_tls_and_then_the_oldest_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    monkeypatch.setattr(connections, "REST_S", HANG_S)
    monkeypatch.setattr(connections, "MOST_RESTING", 2)
    server = Server(surplus=False)
    async with serving(server, tls=True) as address, connect(f"https://{address}/v1") as client:
        for _ in range(9):
            await client.send(ASK)
    assert server.connections == 3


async def test_without_tls_a_server_of_one_thread_is_not_kept_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "REST_S", HANG_S)
    server, thread = Server(surplus=False), asyncio.Lock()

    async def one_at_a_time(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with thread:
            await server(reader, writer)

    async with serving(one_at_a_time) as address, connect(f"http://{address}/v1") as client:
        for _ in range(3):
            await client.send(ASK)
    assert server.connections == 3


async def test_a_server_that_said_too_much_gets_a_connection_for_each_request() -> None:
    server = Server()
    async with asking(server) as client:
        await client.send(ASK)
        server.may_follow.set()
        await until(lambda: connector_of(client)._force_close)
        for _ in range(3):
            await client.send(ASK)
    assert server.connections == 4
