"""`executor: ray` with a cluster of our own: as a worker process, and nothing is tried twice."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.agent import AgentConfig, ProxyConfig, RayConfig
from grpo_practice.core.errors import AgentError, ConfigError
from grpo_practice.rollout.agents import ray_cluster
from grpo_practice.rollout.agents.program_context import ProgramContext
from grpo_practice.run.custom_agent import open_own, open_proxy, open_ray
from tests.contract.own import COMMAND, FUNCTION, THREADS, keys
from tests.contract.own import asking as project
from tests.processes import alive, until
from tests.rollout.agents.custom.helpers import CONTEXT
from tests.rollout.agents.custom.test_worker import FUNCTIONS
from tests.rollout.chat_server.test_proxy import guest

Play = Callable[[str, str, ProgramContext], Awaitable[str]]
LOCAL = ("executor=ray", "ray.address=local")
MORE = """
def chain(question, system, context):
    process, said = os.getpid(), []
    while process > 1:
        try:
            said.append(Path(f"/proc/{process}/environ").read_text())
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            break
        process = int(stat.rpartition(")")[2].split()[1])
        if os.environ["OUTSIDE"] == str(process):
            break
    return "".join(said) + str(dict(os.environ))

def counts(question, system, context):
    with (HERE / "counted").open("a") as file:
        file.write("x")
    os._exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FUNCTIONS + MORE, "utf-8")
    return tmp_path


def config(name: str, **ray: Any) -> AgentConfig:
    given = RayConfig(**{"address": "local", **ray})
    return AgentConfig(type="python", function=f"mine.py:{name}", executor="ray", ray=given)


@asynccontextmanager
async def program(folder: Path, name: str, **ray: Any) -> AsyncIterator[Play]:
    async with (
        open_proxy(ProxyConfig(), folder) as proxy,
        open_ray(config(name, **ray), folder) as made,
    ):
        with proxy.address(guest()) as invited:

            def play(question: str, system: str, context: ProgramContext) -> Any:
                url, key = invited.base_url, invited.token
                return made(question, system, replace(context, base_url=url, api_key=key))

            yield play


@pytest.mark.parametrize("way", [FUNCTION, COMMAND], ids=["function", "command"])
async def test_the_results_are_those_of_threads(tmp_path: Path, way: tuple[str, ...]) -> None:
    here, there = project(tmp_path / "here"), project(tmp_path / "there")
    await here.practise(*keys(THREADS))
    await there.practise(*keys((*way, *LOCAL)))
    assert there.results() == here.results()


async def test_its_environment_has_no_key_nor_that_of_any_process_of_the_cluster(
    folder: Path,
) -> None:
    outside = {"env_vars": {"OUTSIDE": str(os.getpid())}}
    async with program(folder, "chain", runtime_env=outside) as made:
        said = await made("Q", "S", CONTEXT)
    assert "RAY_JOB_ID" in said  # it is the environment of its processes
    assert "sk-canary" not in said
    assert os.environ["UTU_LLM_API_KEY"].startswith("sk-canary")  # we have it again


async def test_how_it_fails_is_the_rollouts_error_and_is_not_tried_again(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, said in {
        "raises": r"mine.py:raises raised KeyError at mine.py:\d+: 'lost'",
        "leaves": "raised SystemExit",
        "counts": "mine.py:counts did not finish: The worker died",
        "is_killed": "mine.py:is_killed did not finish: The worker died",
        "number": "returned int, not text",
        "prints": "printed more than 1,024 KiB",
    }.items():
        async with program(folder, name) as made:
            with pytest.raises(AgentError, match=said):
                await made("Q", "S", CONTEXT)
    assert (folder / "counted").read_text() == "x"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("name", "file"), [("sleeps", "child"), ("deaf", "deaf")])
async def test_a_rollout_that_is_over_ends_its_process_and_what_it_started(
    folder: Path, name: str, file: str
) -> None:
    async with program(folder, name) as made:
        work = asyncio.ensure_future(made("Q", "S", CONTEXT))
        path = folder / file
        await asyncio.to_thread(until, lambda: path.is_file() and path.read_text())
        process = int(path.read_text())
        assert alive(process)
        work.cancel()
        await asyncio.wait((work,))
        await asyncio.to_thread(until, lambda: not alive(process))


async def test_a_function_that_is_not_there_is_said_before_anything_is_played(
    folder: Path,
) -> None:
    (folder / "mine.py").write_text("import nothing_of_this_name\ndef plain(*_): pass\n", "utf-8")
    with pytest.raises(ConfigError, match=r"cannot play: it cannot load .*nothing_of_this_name"):
        async with open_own(config("plain"), folder, print):
            pass


async def test_nodes_without_room_are_said(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no node has the resources for a program: 1000 CPU"):
        async with program(folder, "plain", num_cpus=1000):
            pass
    with pytest.raises(ConfigError, match="1 CPU, 1 browser"):
        async with program(folder, "plain", resources={"browser": 1}):
            pass


async def test_a_process_has_one_cluster(folder: Path) -> None:
    async with program(folder, "plain"):
        async with program(folder, "plain") as again:
            assert (await again("Q", "S", CONTEXT)).startswith("Q S m 1")
        with pytest.raises(ConfigError, match="share one cluster"):
            async with program(folder, "plain", num_cpus=2):
                pass


async def test_an_address_without_a_cluster_is_said(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9: no server listens there"):
        async with program(folder, "plain", address="127.0.0.1:9"):
            pass


SLEEPER = """
import os, pathlib, subprocess, time
def solve(question, system, context):
    child = subprocess.Popen(["sleep", "600"])
    path = pathlib.Path(__file__).parent / f"pid-{os.getpid()}"
    path.write_text(str(child.pid))
    time.sleep(600)
"""


def family(process: int) -> list[int]:
    """Its children, theirs, and so on."""
    try:
        tasks = list(Path(f"/proc/{process}/task").glob("*/children"))
        children = [int(word) for task in tasks for word in task.read_text().split()]
    except OSError:
        return []
    return [one for child in children for one in (child, *family(child))]


def test_a_killed_run_leaves_nothing_behind(tmp_path: Path) -> None:
    made = project(tmp_path / "p")
    (made.folder / "mine.py").write_text(SLEEPER, "utf-8")
    words = [f"agent.{key}" for key in (*FUNCTION, *LOCAL)]
    sets = [word for key in words for word in ("--set", f"evaluation.{key}")]
    command = [sys.executable, "-m", "grpo_practice", "eval", "--config", "c.yaml", "--db", "p.db"]
    driver = subprocess.Popen([*command, *sets], cwd=made.folder)
    try:
        until(lambda: len(list(made.folder.glob("pid-*"))) >= 2)
        all_of_it = family(driver.pid)
        assert len(all_of_it) > 8
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    until(lambda: not any(map(alive, all_of_it)))


def test_a_port_of_somebody_else_is_no_cluster(tmp_path: Path) -> None:
    """In a process of its own: Ray keeps trying, and in the end gives up by ending it."""
    made = project(tmp_path / "p")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        words = [*(f"agent.{key}" for key in FUNCTION), "agent.executor=ray"]
        words += [f"agent.ray.address=127.0.0.1:{port}"]
        sets = [word for key in words for word in ("--set", f"evaluation.{key}")]
        ran = subprocess.run(
            [sys.executable, "-m", "grpo_practice", "eval", "--config", "c.yaml", *sets],
            cwd=made.folder,
            capture_output=True,
            text=True,
            env=os.environ | {"GRPO_PRACTICE_DB": "p.db"},
            check=False,
        )
    assert ran.returncode == 2, ran.stderr
    assert f"Ray does not answer there within {ray_cluster.CONNECT_S:g} s" in ran.stderr
