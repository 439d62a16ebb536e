"""The address of a rollout: who may ask there, by which name, and what is to be seen on the way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from grpo_practice.core.calls import Reply
from grpo_practice.core.redact import Redactor
from grpo_practice.rollout.chat_server import proxy as proxies
from grpo_practice.rollout.chat_server.proxy import Guest, Invitation, Listening, Proxy
from grpo_practice.rollout.chat_server.server import ChatRequest
from grpo_practice.rollout.chat_server.tls import server_context
from tests.contract.certificates import certificate

BODY = {"messages": [{"role": "user", "content": "Q"}]}


def guest(answer: str = "yes") -> Guest:
    async def ask(request: ChatRequest) -> Reply:
        await asyncio.sleep(0)
        return Reply({"role": "assistant", "content": answer})

    return Guest("m", ask)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_the_key_is_in_the_address_or_beside_it() -> None:
    proxy = Proxy()
    async with proxy.served(), aiohttp.ClientSession() as client:
        with proxy.address(guest()) as invited:
            bare = invited.base_url.replace(f"/r/{invited.token}", "")
            for url, headers in ((invited.base_url, {}), (bare, bearer(invited.token))):
                async with client.post(f"{url}/chat/completions", json=BODY, headers=headers) as r:
                    assert (await r.json())["choices"][0]["message"]["content"] == "yes"
                async with client.get(f"{url}/models", headers=headers) as r:
                    assert (await r.json())["data"][0]["id"] == "m"


async def test_each_key_opens_its_own_rollout_and_none_that_has_ended() -> None:
    proxy = Proxy()
    async with proxy.served(), aiohttp.ClientSession() as client:

        async def asked(invited: Invitation, key: str = "other") -> str:
            url = f"{invited.base_url}/chat/completions"
            async with client.post(url, json=BODY, headers=bearer(key)) as r:
                told = await r.json()
                return str(
                    told["error"]["code"]
                    if r.status == 404
                    else told["choices"][0]["message"]["content"]
                )

        with proxy.address(guest("A")) as a, proxy.address(guest("B")) as b:
            # A client that is made once keeps the key of the first rollout: the address counts.
            assert [await asked(a, b.token), await asked(b, a.token)] == ["A", "B"]
        assert [await asked(a), await asked(b)] == ["rollout_ended"] * 2


async def test_who_guesses_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "GUESS_S", 3600.0)
    proxy = Proxy()
    async with proxy.served(), aiohttp.ClientSession() as client:
        with proxy.address(guest()) as invited:
            wrong = invited.base_url.replace(invited.token, "rollout-guess")
            for _ in range(proxies.FREE_GUESSES):
                async with client.get(f"{wrong}/models") as r:
                    assert r.status == 404
            with pytest.raises(TimeoutError):
                async with client.get(f"{wrong}/models", timeout=aiohttp.ClientTimeout(0.2)):
                    pass
            async with client.get(f"{invited.base_url}/models") as r:  # who has the key does not
                assert r.status == 200


async def test_it_answers_to_its_own_names_only() -> None:
    proxy = Proxy(Listening(url="https://driver.example:8443/grpo"))
    async with proxy.served(), aiohttp.ClientSession() as client:
        with proxy.address(guest()) as invited:
            assert invited.base_url == f"https://driver.example:8443/grpo/r/{invited.token}/v1"
            url = f"http://127.0.0.1:{proxy.port}/r/{invited.token}/v1/models"
            for host, status in (
                ("driver.example:8443", 200),
                ("127.0.0.1", 200),
                ("evil.example", 403),
            ):
                async with client.get(url, headers={"Host": host}) as r:
                    assert r.status == status


@asynccontextmanager
async def tapped(port: int) -> AsyncIterator[tuple[int, bytearray]]:
    """A relay to the port that keeps a copy of every byte."""
    seen = bytearray()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            seen.extend(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, up[1]), copy(up[0], writer), return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()


@pytest.mark.parametrize("encrypted", [True, False])
async def test_with_tls_neither_key_nor_conversation_is_to_be_read_on_the_way(
    tmp_path: Path, encrypted: bool
) -> None:
    made = certificate(tmp_path, "127.0.0.1")
    tls = server_context(made.cert, made.key, "127.0.0.1") if encrypted else None
    proxy = Proxy(Listening(tls=tls))
    scheme, client_tls = ("https", made.client) if encrypted else ("http", False)
    async with proxy.served(), tapped(proxy.port) as (port, seen):
        with proxy.address(guest("a secret answer")) as invited:
            url = f"{scheme}://127.0.0.1:{port}/r/{invited.token}/v1/chat/completions"
            async with (
                aiohttp.ClientSession() as client,
                client.post(
                    url, json=BODY, ssl=client_tls, headers=bearer(invited.token)
                ) as response,
            ):
                assert "a secret answer" in json.dumps(await response.json())
    found = [text in seen for text in (invited.token.encode(), b"a secret answer", b"messages")]
    assert found == [not encrypted] * 3
    assert len(seen) > 500


async def test_a_key_is_hidden_in_every_text_of_ours_alive_or_not() -> None:
    proxy = Proxy()
    async with proxy.served():
        with proxy.address(guest()) as invited:
            pass
    said = f"404 for {invited.base_url}/models with Bearer {invited.token}"
    shown = Redactor().text(said)
    assert invited.token not in shown
    assert shown.endswith("/r/***/v1/models with Bearer ***")
    assert Redactor().suspects(said)


def test_a_text_that_only_looks_like_one_is_left_alone() -> None:
    for text in (
        "https://x.org/rollout-of-the-new-version-in-production-clusters-2024-and-after",
        "gp-rollout-" + "a" * 42,
    ):
        assert Redactor().text(text) == text
