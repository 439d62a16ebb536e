"""A service that says when to ask again, never answers, or sends interim answers without end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest
from aiohttp import ClientPayloadError

from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.search.bounded_body import unread_bodies
from grpo_practice.rollout.tools.search.engines import Search, serper
from grpo_practice.rollout.tools.search.service import TRIES, Service
from tests.contract.standins import SERPER_KEY, Answer, Standins, standins
from tests.llm.test_http import read_request, serving
from tests.processes import HANG_S


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class Slept(list[float]):
    """Remembers how long it was to wait, and does not."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def opened(
    slept: Slept | None = None, timeout_s: float = 5.0
) -> AsyncIterator[tuple[Search, Standins]]:
    async with standins() as it, aiohttp.ClientSession(auto_decompress=False) as session:
        sleep = Slept() if slept is None else slept
        service = Service(
            "Serper", session, {"X-API-KEY": SERPER_KEY}, "buy some", timeout_s, sleep
        )
        yield serper(service, it.serper_url, {}), it


async def test_1_53_a_service_that_says_when_is_asked_then_and_not_next_week() -> None:
    slept, tomorrow = Slept(), format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    async with opened(slept) as (search, it):
        for asked in ("7", "100000", "Wed, 21 Oct 2015 07:28:00 GMT", tomorrow):
            it.script("serper", Answer(429, headers={"Retry-After": asked}))
            await search("q", 1)
    assert slept[0] == 7
    assert slept[1] == slept[3] == 30
    assert slept[2] <= 1


async def test_1_53_an_answer_that_does_not_come_is_an_error_after_a_while() -> None:
    async with opened(timeout_s=0.05) as (search, it):
        it.script("serper", *[Answer(delay_s=1)] * TRIES)
        with pytest.raises(ToolError, match=r"did not answer within 0\.05 s"):
            await search("q", 1)


async def test_a_service_that_sends_interim_answers_without_end_is_given_up() -> None:
    async def go_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await writer.drain()

    async with asyncio.timeout(HANG_S), serving(go_on) as address, AsyncExitStack() as stack:
        session = await stack.enter_async_context(unread_bodies())
        with pytest.raises(ClientPayloadError, match="informational responses"):
            await session.post(f"http://{address}/")
