"""`agent.proxy`: where programs ask, who may be told of it, and what is said where it fails."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_practice.config.schema.agent import AgentConfig, ProxyConfig
from grpo_practice.core.errors import AgentError, ConfigError
from grpo_practice.rollout.agents import program_endpoint
from grpo_practice.rollout.agents.custom_agents import CustomAgent
from grpo_practice.rollout.chat_server.proxy import Guest
from grpo_practice.run.custom_agent import open_own, open_proxy, seconds_to
from tests.contract.certificates import certificate
from tests.rollout.chat_server.test_proxy import guest


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


CLEAR = "serving other machines needs tls_cert and tls_key, or a url with https://"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"host": "10.1.2.3"}, CLEAR),
        ({"host": "driver.example"}, CLEAR),
        ({"url": "http://driver.example:8000"}, CLEAR),
        ({"host": "0.0.0.0", "url": "http://127.0.0.1:8000"}, CLEAR),
        ({"host": "0.0.0.0", "insecure": True}, "programs cannot connect to 0.0.0.0: set url"),
        ({"host": "::", "tls_cert": "c", "tls_key": "k"}, "programs cannot connect to ::: set url"),
        ({"tls_cert": "c"}, "tls_cert and tls_key go together"),
        ({"tls_cert": "c", "tls_key": "k", "url": "http://h"}, "url should begin with https://"),
        ({"url": "https://user:secret@h"}, "url may contain only"),
        ({"url": "https://h/?key=1"}, "url may contain only"),
        ({"url": "driver.example:8000"}, "http:// or https:// URL"),
        ({"port": 70_000}, "less than or equal to 65535"),
    ],
)
def test_an_address_that_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as told:
        ProxyConfig.model_validate(given)
    assert said in str(told.value)


@pytest.mark.parametrize(
    "given",
    [
        {"host": "10.1.2.3", "insecure": True},
        {"host": "10.1.2.3", "tls_cert": "c", "tls_key": "k"},
        {"host": "10.1.2.3", "url": "https://driver.example"},
        {"port": 8000, "url": "http://localhost:9000"},
        {"host": "::1"},
    ],
)
def test_an_address_that_is_taken(given: dict[str, Any]) -> None:
    ProxyConfig.model_validate(given)


def test_a_simple_agent_has_none() -> None:
    with pytest.raises(ValidationError, match="type simple does not use proxy"):
        AgentConfig(proxy=ProxyConfig(port=8000))


async def test_the_agents_of_one_evaluation_share_a_port(tmp_path: Path) -> None:
    config = ProxyConfig(port=free_port())
    first, second = AsyncExitStack(), AsyncExitStack()
    proxies = await asyncio.gather(
        *(stack.enter_async_context(open_proxy(config, tmp_path)) for stack in (first, second))
    )
    assert proxies[0] is proxies[1]
    await first.aclose()
    assert await seconds_to(proxies[1]) > 0
    await second.aclose()
    async with open_proxy(config, tmp_path) as again:  # the port is free
        assert again is not proxies[0]


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = ProxyConfig(port=other.getsockname()[1])
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"cannot listen at 127\.0\.0\.1:\d+: .*in use"):
                async with open_proxy(config, tmp_path):
                    pass


async def test_with_a_certificate_it_is_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(tmp_path, "127.0.0.1")
    config = ProxyConfig(tls_cert=made.cert.name, tls_key=made.key.name)
    async with open_proxy(config, tmp_path) as proxy:
        with proxy.address(guest()) as invited:
            assert invited.base_url.startswith(f"https://127.0.0.1:{proxy.port}/r/")
        with pytest.raises(AgentError, match="unable to get local issuer certificate"):
            await seconds_to(proxy)
        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
        assert await seconds_to(proxy) > 0


@pytest.mark.parametrize(
    ("path", "said"),
    [("", "Connection refused"), ("/v1/somebody/else", "another server answers there")],
)
async def test_an_address_that_does_not_lead_here_is_said(
    tmp_path: Path, path: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text("async def solve(*_): return ''\n", "utf-8")
    notices = list[str]()
    async with open_proxy(ProxyConfig(), tmp_path) as other:
        port = other.port if path else free_port()
        proxy = ProxyConfig(port=free_port(), url=f"http://127.0.0.1:{port}{path}")
        config = AgentConfig(type="python", function="mine.py:solve", proxy=proxy)
        async with open_own(config, tmp_path, notices.append) as agent:
            assert isinstance(agent, CustomAgent)
    assert [said in notice for notice in notices] == [True]
    assert notices[0].startswith(f"agent.proxy.url {proxy.url} does not lead here")


async def test_another_model_is_somebody_else(tmp_path: Path) -> None:
    async with open_proxy(ProxyConfig(), tmp_path) as proxy:
        with proxy.address(Guest("m", guest().ask)) as invited:
            look = asyncio.to_thread(
                program_endpoint.look, invited.base_url, invited.token, "other"
            )
            with pytest.raises(AgentError, match="another server answers there"):
                await look


async def test_what_answers_otherwise_is_said() -> None:
    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-here\r\n")
        writer.close()

    server = await asyncio.start_server(greets, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    with pytest.raises(AgentError, match="another server answers there, and not over HTTP"):
        await asyncio.to_thread(program_endpoint.look, url, "key", "m")
    server.close()


async def test_what_speaks_no_http_is_said(tmp_path: Path) -> None:
    made = certificate(tmp_path, "127.0.0.1")
    config = ProxyConfig(tls_cert=made.cert.name, tls_key=made.key.name)
    async with open_proxy(config, tmp_path) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/v1"
        with pytest.raises(AgentError, match="closed connection without response"):
            await asyncio.to_thread(program_endpoint.look, url, "key", "m")
