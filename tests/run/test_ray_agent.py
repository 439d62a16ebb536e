"""`executor: ray` without Ray: what is refused, and what goes to a node."""

import asyncio
import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_practice.config.schema.agent import AgentConfig, ProxyConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.rollout.agents import on_node, ray_cluster
from grpo_practice.rollout.agents.on_node import play
from grpo_practice.rollout.agents.ray_cluster import ClusterSettings, _initialise
from grpo_practice.run.custom_agent import _source, open_own, open_proxy
from tests.rollout.agents.custom.helpers import CONTEXT, PYTHON
from tests.rollout.chat_server.test_proxy import guest

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
        answered, why = play(source, "Q", "S", CONTEXT)
        assert (answered, why[:27]) == (False, "it does not reach its model")
    async with open_proxy(ProxyConfig(), tmp_path) as proxy:
        with proxy.address(guest()) as invited:
            given = ("Q", "S", replace(CONTEXT, base_url=invited.base_url))
            assert await asyncio.to_thread(play, function, *given) == (True, "Q S m")
            assert await asyncio.to_thread(play, command, *given) == (True, "Q!")


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
