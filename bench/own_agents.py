"""Agents of the user's that compute, on every core: wall over that of bare processes in turn.

Each of 200 agents takes 0.5 s of processor time and asks nothing. The floor is the same seconds in
as many bare processes as there are cores, just before. Beside it is the event loop's stall
meanwhile, and the same function in threads, which share one core with the loop.
"""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, Popen

from bench.harness import (
    Row,
    Run,
    at_most,
    cli,
    endpoint,
    folder,
    run,
    stalls,
    write_config,
    write_tasks,
)
from grpo_practice.core.calls import Reply
from grpo_practice.core.processes import cores
from grpo_practice.rollout.agents.program_context import ProgramContext
from grpo_practice.rollout.agents.programs import WorkerProgram
from grpo_practice.rollout.chat_server.proxy import Guest, Proxy
from grpo_practice.rollout.chat_server.server import ChatRequest, RequestError
from grpo_practice.run.own_code import source_of

BURN = """
import time


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1_000))
"""
FUNCTION = """

def solve(question, system, context):
    burn({seconds})
    return "1"


def nothing(question, system, context):
    return "1"
"""
COMMAND = """
burn({seconds})
print('{{"answer": "1"}}')
"""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to play the agent."""

    name: str
    agent: dict[str, object]
    most: float | None
    """Target of wall over floor."""


FUNCTION_AGENT: dict[str, object] = {"type": "python", "function": "own.py:solve"}
WORKERS = Way("function in workers", FUNCTION_AGENT, 1.25)
WAYS = (
    Way("command", {"type": "command", "command": [sys.executable, "own_command.py"]}, 1.25),
    WORKERS,
    Way("function in threads", FUNCTION_AGENT | {"workers": 0}, None),
)
HEAD = "127.0.0.1:6388"
RAY = {"executor": "ray", "ray": {"address": HEAD}}
ON_RAY = Way("function on Ray, one node", FUNCTION_AGENT | RAY, None)
"""Played where Ray is installed: `python -m tests.ray -- -m bench own_agents`."""


@contextmanager
def ray_head() -> Iterator[Sequence[Way]]:
    """Keep a cluster of this machine running for the block; yield the ways to play on it."""
    if find_spec("ray") is None:
        yield ()
        return
    ray = str(Path(sys.executable).with_name("ray"))
    words = ["start", "--head", "--port=6388", f"--num-cpus={cores()}", "--block"]
    words += ["--include-dashboard=false", "--disable-usage-stats"]
    with Popen([ray, *words], stdout=DEVNULL, stderr=DEVNULL) as head:
        try:
            time.sleep(10)  # the first command waits for what is left of its start
            yield (ON_RAY,)
        finally:
            head.terminate()


def floor(here: Path, agents: int, seconds: float) -> float:
    """Return the seconds that as many bare processes as cores take for all agents."""
    code = BURN + f"burn({seconds * agents / cores()})"
    (here / "floor.py").write_text(code, "utf-8")
    start = time.monotonic()
    processes = [Popen([sys.executable, "floor.py"], cwd=here) for _ in range(cores())]
    for process in processes:
        process.wait()
    return time.monotonic() - start


def played(way: Way, here: Path, url: str, name: str, agents: int) -> Run:
    """Evaluate that many agents, each of one question."""
    model = {"model_provider": {"model": "bench", "base_url": url, "api_key": "EMPTY"}}
    work = {"agent": {"model": model} | way.agent, "verify": "contains", "concurrency": 64}
    write_config(here / f"{name}.yaml", url, evaluation=work | {"data": {"dataset": str(agents)}})
    done = run(here, "eval", "--config", f"{name}.yaml", "--set", f"exp_id={name}")
    assert done.document["score"]["correct"] == agents, done.document
    return done


def warm_s(way: Way, here: Path, url: str, name: str, whole: Run) -> float:
    """Return the seconds of a run without those of a command that computes nothing, just after."""
    idle = replace(way, agent=way.agent | {"function": "own.py:nothing"})
    return whole.wall_s - played(idle, here, url, name, cores()).wall_s


async def nothing(request: ChatRequest) -> Reply:
    """Answer nothing: these functions do not ask."""
    await asyncio.sleep(0)
    raise RequestError("nobody asks")


def per_call_ms(here: Path, calls: int) -> float:
    """Return what a call in a worker takes longer than the function itself, which does nothing."""

    async def measured() -> float:
        program = WorkerProgram(source_of("own.py:nothing", here), 1)
        await program.start()
        proxy = Proxy()
        try:
            async with proxy.served():
                with proxy.address(Guest("m", nothing)) as invited:
                    url, key = invited.base_url, invited.token
                    context = ProgramContext(url, key, "m", 0, 1, 600.0)
                    await program("q", "s", context)
                    start = time.perf_counter()
                    for _ in range(calls):
                        await program("q", "s", context)
                    return 1000 * (time.perf_counter() - start) / calls
        finally:
            await program.close()

    return asyncio.run(measured())


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure each way in turn, each beside its floor."""
    agents, seconds, calls = (8, 0.01, 10) if tiny else (200, 0.5, 500)
    per_call, beside = list[float](), list[float]()
    with endpoint(size=64) as url, folder() as here, ray_head() as on_ray:
        ways = (*WAYS, *on_ray)
        ratios: dict[str, list[float]] = {way.name: [] for way in ways}
        ideal: dict[str, list[float]] = {way.name: [] for way in ways}
        done: dict[str, list[Run]] = {way.name: [] for way in ways}
        (here / "own.py").write_text(BURN + FUNCTION.format(seconds=seconds), "utf-8")
        (here / "own_command.py").write_text(BURN + COMMAND.format(seconds=seconds), "utf-8")
        for size in {agents, cores()}:
            write_tasks(here / f"{size}.jsonl", size, [("1", "1", "2")])
            cli(here, "data", "upload", f"{size}.jsonl", "--name", str(size))
        for n in range(runs):
            for i, way in enumerate(ways):
                bare_s = floor(here, agents, seconds)
                one = played(way, here, url, f"way{i}-{n}", agents)
                ratios[way.name].append(one.wall_s / bare_s)
                ideal[way.name].append(one.wall_s / (agents * seconds / cores()))
                done[way.name].append(one)
            per_call.append(per_call_ms(here, calls))
            if on_ray:
                ray_s = warm_s(ON_RAY, here, url, f"ray-idle-{n}", done[ON_RAY.name][-1])
                workers_s = warm_s(WORKERS, here, url, f"idle-{n}", done[WORKERS.name][-1])
                beside.append(ray_s / workers_s)
    warm = Row("Ray, one node, warm: wall / that of workers", "≤ 1.15", beside, at_most(1.15))
    return [
        *(row for way in ways for row in _rows_of(way, ratios, ideal, done[way.name])),
        Row("function in workers: a call beyond the function, ms", "≤ 5", per_call, at_most(5)),
        *([warm] if beside else []),
    ]


def _rows_of(
    way: Way,
    ratios: dict[str, list[float]],
    ideal: dict[str, list[float]],
    runs: Sequence[Run],
) -> list[Row]:
    target = f"≤ {way.most}" if way.most else ""
    reached = at_most(way.most) if way.most else None
    return [
        Row(f"{way.name}: wall / floor", target, ratios[way.name], reached),
        Row(f"{way.name}: wall / (CPU seconds ÷ cores)", "", ideal[way.name]),
        *stalls(way.name, runs),
    ]
