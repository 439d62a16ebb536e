"""Services behind proxies, and services that never come to an answer."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientPayloadError

from grpo_practice.errors import ConfigError
from grpo_practice.tools.search.bounded_body import unread_bodies
from tests.llm.test_http import read_request, serving
from tests.llm.test_socks import recording
from tests.processes import HANG_S
from tests.tools.search.standins import standins
from tests.tools.search.test_tools import FakeModel, call, opened


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
async def test_no_key_of_a_service_goes_to_a_socks_proxy(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    async with recording() as (proxy, came), standins() as it:
        monkeypatch.setenv(variable, f"socks5://{proxy}")
        with pytest.raises(ConfigError, match=f"{variable} names a SOCKS proxy"):
            async with opened(it, FakeModel()) as tools:
                await call(tools, "search", query="whales")
        assert bytes(came) == b""


async def test_a_service_that_sends_interim_answers_without_end_is_given_up() -> None:
    async def go_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await writer.drain()

    async with asyncio.timeout(HANG_S), serving(go_on) as address, AsyncExitStack() as stack:
        session = await stack.enter_async_context(unread_bodies())
        with pytest.raises(ClientPayloadError, match="interim answers"):
            await session.post(f"http://{address}/")
