"""A SOCKS proxy of the environment is refused before a byte is sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from grpo_practice.core.calls import Request
from grpo_practice.core.errors import ConfigError, GrpoPracticeError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from tests.fakes import FakeSleep
from tests.llm.test_http import answer, serving
from tests.processes import HANG_S

ASK = Request("m-1", {}, [{"role": "user", "content": "hi"}])
KEY = "sk-planted-0123456789"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@asynccontextmanager
async def recording() -> AsyncIterator[tuple[str, bytearray]]:
    """A port that keeps all that comes and answers nothing; its address."""
    came = bytearray()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.extend(await reader.read(1 << 16))

    async with serving(keep) as address:
        yield address, came


def connect(url: str) -> Client:
    endpoint = Endpoint(url, api_key=KEY, timeout_s=5, max_tries=1)
    return Client(endpoint, Limit(2), notice=lambda _: None, sleep=FakeSleep())


async def ask(url: str) -> str:
    async with asyncio.timeout(HANG_S), connect(url) as client:
        return str((await client.send(ASK)).content)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "SOCKS5"])
@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("ALL_PROXY", "http://127.0.0.1:9/v1"),
        ("ALL_PROXY", "https://127.0.0.1:9/v1"),
        ("all_proxy", "http://127.0.0.1:9/v1"),
        ("HTTP_PROXY", "http://127.0.0.1:9/v1"),
        ("HTTPS_PROXY", "https://127.0.0.1:9/v1"),
    ],
)
async def test_nothing_is_sent_to_a_socks_proxy_and_the_variable_is_named(
    scheme: str, variable: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recording() as (proxy, came):
        monkeypatch.setenv(variable, f"{scheme}://ann:pass-77-word@{proxy}")
        caught: GrpoPracticeError | None = None
        try:
            await ask(url)
        except GrpoPracticeError as e:
            caught = e
    assert bytes(came) == b""
    assert isinstance(caught, ConfigError)
    assert f"{variable} names a SOCKS proxy" in str(caught)
    assert "NO_PROXY" in str(caught.hint)
    assert "pass-77-word" not in f"{caught} {caught.hint}"


async def test_no_proxy_and_a_proxy_of_http_go_before_socks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with recording() as (proxy, came), serving(answer) as address:
        monkeypatch.setenv("ALL_PROXY", f"socks5h://{proxy}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert await ask(f"http://{address}/v1") == "24"
        monkeypatch.delenv("NO_PROXY")
        # The server takes a proxy's request as its own.
        monkeypatch.setenv("HTTP_PROXY", f"http://{address}")
        assert await ask("http://model.invalid/v1") == "24"
        assert bytes(came) == b""
