"""The user's own agent: opened here or by Ray, and the address at which it asks its model."""

import asyncio
import importlib.util
import os
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_practice.config.schema.agent import AgentConfig, ProxyConfig
from grpo_practice.core.errors import AgentError, ConfigError
from grpo_practice.rollout.agents import on_node, program_endpoint, ray_cluster
from grpo_practice.rollout.agents.custom_agents import CustomAgent
from grpo_practice.rollout.agents.on_node import play_on_node
from grpo_practice.rollout.agents.ray_cluster import ClusterSettings, _initialise
from grpo_practice.rollout.chat_server.proxy import Guest
from grpo_practice.run.custom_agent import _source, open_own, open_proxy, seconds_to
from tests.contract.certificates import certificate
from tests.processes import free_port
from tests.rollout.agents.custom.helpers import CONTEXT, PYTHON
from tests.rollout.chat_server.test_proxy import guest

PROXY = "NO_PROXY"


async def test_runs_that_overlap_leave_the_process_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROXY, "host.example")
    (tmp_path / "player.py").write_text("def play(question, system, context): return '1'\n")
    config = AgentConfig(type="python", function="player.py:play", workers=0)
    stdout = sys.stdout
    first, second = (open_own(config, tmp_path, print) for _ in range(2))
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert sys.stdout is sys.stderr  # the second one still plays
    assert os.environ[PROXY] == "host.example,127.0.0.1"
    await second.__aexit__(None, None, None)
    assert sys.stdout is stdout
    assert os.environ[PROXY] == "host.example"


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
        ({"url": "driver.example:8000"}, "has no scheme"),
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
    assert notices[0].startswith(f"agent.proxy.url {proxy.url} does not reach this program")


async def test_another_model_is_somebody_else(tmp_path: Path) -> None:
    async with open_proxy(ProxyConfig(), tmp_path) as proxy:
        with proxy.address(Guest("m", guest().ask)) as invited:
            look = asyncio.to_thread(
                program_endpoint.reach, invited.base_url, invited.token, "other"
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
        await asyncio.to_thread(program_endpoint.reach, url, "key", "m")
    server.close()


async def test_what_speaks_no_http_is_said(tmp_path: Path) -> None:
    made = certificate(tmp_path, "127.0.0.1")
    config = ProxyConfig(tls_cert=made.cert.name, tls_key=made.key.name)
    async with open_proxy(config, tmp_path) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/v1"
        with pytest.raises(AgentError, match="closed connection without response"):
            await asyncio.to_thread(program_endpoint.reach, url, "key", "m")


RAY = {"address": "local"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "executor ray needs ray.address"),
        ({"ray": {}}, "Field required"),
        ({"ray": {"address": "auto"}}, "String should match pattern"),
        ({"ray": {"address": "ray://head:10001"}}, "String should match pattern"),
        ({"ray": {"address": "head"}}, "String should match pattern"),
        ({"ray": {"address": "local", "num_cpus": 0}}, "greater than 0"),
        ({"ray": {"address": "local", "resources": {"CPU": 1}}}, "CPU is not a custom resource"),
        ({"ray": {"address": "local", "resources": {"a": -1}}}, "greater than 0"),
        ({"ray": RAY, "workers": 4}, "executor ray does not use workers"),
        ({"ray": RAY, "type": "simple", "function": None}, "type simple does not use executor"),
    ],
)
def test_a_cluster_that_is_refused(given: dict[str, Any], said: str) -> None:
    whole = {"type": "python", "function": "mine.py:solve", "executor": "ray", **given}
    with pytest.raises(ValidationError, match=said):
        AgentConfig.model_validate(whole)


def test_a_cluster_that_is_not_used_may_stay() -> None:
    AgentConfig.model_validate({"type": "python", "function": "mine.py:solve", "ray": RAY})


def of(folder: Path, **given: Any) -> AgentConfig:
    (folder / "mine.py").write_text("def solve(q, s, c): return f'{q} {s} {c.model}'\n", "utf-8")
    whole = {"type": "python", "function": "mine.py:solve", "executor": "ray", "ray": RAY}
    return AgentConfig.model_validate(whole | given)


async def test_without_the_extra_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="which is not installed") as told:
        async with open_own(of(tmp_path), tmp_path, print):
            pass
    assert told.value.hint is not None
    assert told.value.hint.startswith("pip install 'grpo-practice[ray]'")


async def test_what_ray_says_of_another_version_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def initialise(settings: ClusterSettings, local_cores: int) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.50\n")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(ray_cluster, "_initialise", initialise)
    said = "local: Version mismatch: The cluster was started with: Ray: 2.50"
    with pytest.raises(ConfigError, match=said):
        async with open_own(of(tmp_path), tmp_path, print):
            pass


async def test_a_cluster_that_ends_our_process_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def initialise(settings: ClusterSettings, local_cores: int) -> None:
        sys.exit(15)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(ray_cluster, "_initialise", initialise)
    with pytest.raises(ConfigError, match="Ray does not answer there"):
        async with open_own(of(tmp_path), tmp_path, print):
            pass


async def test_a_function_goes_as_text_and_a_command_with_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = _source(of(tmp_path), tmp_path)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/agent.py").write_text(
        "import json, sys; given = json.load(sys.stdin)\n"
        "print(json.dumps({'answer': given['question'] + open('tools/words').read()}))\n"
    )
    (tmp_path / "tools/words").write_text("!", "utf-8")
    words = [PYTHON, "tools/agent.py", "tools/words"]
    command = _source(of(tmp_path, type="command", function=None, command=words), tmp_path)
    for path in ("mine.py", "tools/agent.py", "tools/words"):
        (tmp_path / path).unlink()
    monkeypatch.setattr(on_node, "_alone", lambda: None)  # a node's process plays nothing else
    for source in (function, command):
        answered, why, _ = play_on_node(source, "Q", "S", CONTEXT)
        assert (answered, why[:27]) == (False, "it does not reach its model")
    async with open_proxy(ProxyConfig(), tmp_path) as proxy:
        with proxy.address(guest()) as invited:
            given = ("Q", "S", replace(CONTEXT, base_url=invited.base_url))
            assert await asyncio.to_thread(play_on_node, function, *given) == (True, "Q S m", [])
            assert await asyncio.to_thread(play_on_node, command, *given) == (True, "Q!", [])


def test_a_file_of_elsewhere_does_not_go(tmp_path: Path) -> None:
    (tmp_path / "agent.py").touch()
    (tmp_path / "project").mkdir()
    command = [PYTHON, "../agent.py"]
    config = of(tmp_path / "project", type="command", function=None, command=command)
    with pytest.raises(ConfigError, match=r"\.\./agent\.py is outside the config's folder"):
        _source(config, tmp_path / "project")


def test_what_a_node_imports_is_the_standard_librarys() -> None:
    code = (
        "import sys; before = set(sys.modules); import grpo_practice.rollout.agents.on_node\n"
        "found = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(found - set(sys.stdlib_module_names) - {'__mp_main__'}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert told.strip() == "['grpo_practice', 'typing_extensions']"


def test_ray_that_was_imported_without_a_login_starts_no_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", object())
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(RuntimeError, match="set RAY_AUTH_MODE=token before"):
        _initialise(ClusterSettings("local"), 1)
