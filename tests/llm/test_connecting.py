"""Before an answer comes: looking up the name, room for the request, interim answers."""

import asyncio
from dataclasses import replace

import pytest

from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.http import Http
from grpo_practice.llm.http_response import Response
from tests.fakes import FakeSleep
from tests.llm.test_http import ASK, BODY, OK, connect, read_request, serving
from tests.processes import HANG_S


async def test_a_name_that_is_never_looked_up_ends_with_the_connect_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookups = 0

    async def hang(*_: object, **__: object) -> list[tuple[object, ...]]:
        nonlocal lookups
        lookups += 1
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", hang)
    # Longer than the test may hang: only the connect deadline is left to end it.
    endpoint = Endpoint("http://model.invalid/v1", timeout_s=10 * HANG_S, max_tries=2)
    endpoint = replace(endpoint, connect_timeout_s=0.05)
    async with (
        asyncio.timeout(HANG_S),
        Client(endpoint, Limit(8), notice=lambda _: None, sleep=FakeSleep()) as client,
    ):
        with pytest.raises(EndpointRefusedError, match="cannot reach") as caught:
            await client.send(ASK)
    assert caught.value.broken == "connect"
    assert lookups >= 1
    assert isinstance(caught.value.__cause__, EndpointError)
    assert not caught.value.__cause__.maybe_paid


async def test_interim_answers_without_end_are_given_up() -> None:
    connections = 0

    async def go_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await writer.drain()

    async with (
        asyncio.timeout(HANG_S),
        serving(go_on) as address,
        connect(f"http://{address}/v1", timeout_s=10 * HANG_S) as client,
    ):
        with pytest.raises(EndpointError, match="informational responses") as caught:
            await client.send(ASK)
    assert caught.value.broken == "cut"
    assert connections == 2


async def test_a_few_interim_answers_before_each_reply_are_read_over() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for line in (b"100 Continue", b"102 Processing", b"103 Early Hints") * 5:
                writer.write(b"HTTP/1.1 %b\r\nLink: </x>\r\n\r\n" % line)
            writer.write(OK % len(BODY) + BODY)
            await writer.drain()

    async with serving(early) as address, connect(f"http://{address}/v1", n=1) as client:
        # Counted for each request, not for the connection that they share.
        assert [(await client.send(ASK)).content for _ in range(5)] == ["24"] * 5


async def test_no_more_requests_are_under_way_than_there_is_room_for() -> None:
    now, most = 0, 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now, most
        while True:
            await read_request(reader)
            now, most = now + 1, max(most, now + 1)
            await asyncio.sleep(0)
            now -= 1
            writer.write(OK % len(BODY) + BODY)
            await writer.drain()

    async with asyncio.timeout(HANG_S), serving(count) as address:
        url = f"http://{address}/v1"
        http = Http(Endpoint(url), 2, None)
        came = await asyncio.gather(*(http.post(b"{}") for _ in "12345"))
        await http.aclose()
    assert [isinstance(response, Response) for response, _ in came] == [True] * 5
    assert 1 <= most <= 2
