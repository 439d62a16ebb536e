"""`type: python` in processes of its own: what a function does there stays in its rollout."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.core.processes import cores
from grpo_practice.rollout.agents.custom_agents import CustomAgent
from grpo_practice.rollout.agents.programs import WorkerProgram
from grpo_practice.run.custom_agent import open_own
from grpo_practice.run.own_code import source_of
from tests.processes import alive, until
from tests.rollout.agents.custom.helpers import CONTEXT

FUNCTIONS = """
import os, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).parent

def plain(question, system, context):
    return f"{question} {system} {context.model} {context.attempt} {os.getpid()}"

async def on_loop(question, system, context):
    return plain(question, system, context)

def settings(question, system, context):
    return "\\n".join(f"{key}={value}" for key, value in os.environ.items())

def beginning(question, system, context):
    places = ("/proc/self/environ", f"/proc/{os.getppid()}/environ")
    return "".join(Path(place).read_text() for place in places)

def raises(question, system, context):
    raise KeyError("lost")

def leaves(question, system, context):
    sys.exit(3)

def exits(question, system, context):
    os._exit(3)

def is_killed(question, system, context):
    os.kill(os.getpid(), 9)

def crashes(question, system, context):
    import ctypes
    ctypes.string_at(0)

def forks(question, system, context):
    if os.fork() == 0:
        return "the child"
    return "the parent"

def number(question, system, context):
    return 42

def prints(question, system, context):
    while True:
        print("x" * 10_000)

def says(question, system, context):
    print("loud and clear")
    return "said"

def sleeps(question, system, context):
    child = subprocess.Popen(["sleep", "600"])
    (HERE / "child").write_text(str(child.pid))
    time.sleep(600)

def burns(question, system, context):
    child = subprocess.Popen(["sleep", "600"])
    (HERE / "burns").write_text(str(child.pid))
    return str(sum(range(10**12)))  # C code: no handler of Python's runs

def pools(question, system, context):
    import multiprocessing
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    process.start()
    process.terminate()
    process.join()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return str(pool.map(abs, [-1, 2]))

class Own(str):
    def __reduce__(self):
        return (os.system, ("touch " + str(HERE / "ran"),))

def own_text(question, system, context):
    return Own("mine")

def own_error(question, system, context):
    class Odd(Exception):
        def __str__(self):
            return Own("odd")
    raise Odd

def writes(question, system, context):
    sys.stdout.buffer.write(b"bytes")
    subprocess.run(["true"], stdout=sys.stderr, check=True)
    return sys.stdout.encoding

def deaf(question, system, context):
    import ctypes
    (HERE / "deaf").write_text(str(os.getpid()))
    ctypes.CDLL(None).sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    return tmp_path


@asynccontextmanager
async def program(folder: Path, name: str, workers: int = 1) -> AsyncIterator[WorkerProgram]:
    made = WorkerProgram(source_of(f"mine.py:{name}", folder), workers)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def call(folder: Path, name: str) -> str:
    async with program(folder, name) as made:
        return await made("Q", "S", CONTEXT)


@pytest.mark.long
def test_what_it_prints_goes_to_stderr(folder: Path) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path; "
        "from tests.rollout.agents.custom import test_worker"
        "\nprint(asyncio.run(test_worker.call(Path(sys.argv[1]), 'says')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )
    assert (ran.stdout, "loud and clear" in ran.stderr) == ("said\n", True)


DRIVER = """
import asyncio, sys
from pathlib import Path
from tests.rollout.agents.custom import test_worker
asyncio.run(test_worker.call(Path(sys.argv[1]), sys.argv[2]))
"""


@pytest.mark.long
@pytest.mark.parametrize(("name", "file"), [("sleeps", "child"), ("burns", "burns")])
def test_a_killed_run_leaves_nothing_of_it_behind(folder: Path, name: str, file: str) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder), name])
    try:
        path = folder / file
        until(lambda: path.is_file() and path.read_text(), driver)
        process = int(path.read_text())
        assert alive(process)
    finally:
        driver.kill()
        driver.wait()
    until(lambda: not alive(process))


@pytest.mark.parametrize(
    ("name", "file"), [("sleeps", "child"), ("burns", "burns"), ("deaf", "deaf")]
)
async def test_a_rollout_that_is_over_ends_the_process_and_what_it_started(
    folder: Path, name: str, file: str
) -> None:
    async with program(folder, name) as made:
        work = asyncio.create_task(made("Q", "S", CONTEXT))
        await asyncio.to_thread(
            until, lambda: (folder / file).is_file() and (folder / file).read_text()
        )
        process = int((folder / file).read_text())
        assert alive(process)
        work.cancel()
        await asyncio.wait((work,))
        await asyncio.to_thread(until, lambda: not alive(process))


async def test_the_kind_of_function_says_where_it_runs(folder: Path) -> None:
    async def place(name: str, workers: int | None) -> CustomAgent:
        config = AgentConfig(type="python", function=f"mine.py:{name}", workers=workers)
        async with open_own(config, folder, print) as agent:
            assert isinstance(agent, CustomAgent)
            return agent

    found = [
        (await place(name, workers))._room.places
        for name, workers in (("plain", None), ("on_loop", None), ("plain", 0), ("on_loop", 2))
    ]
    assert found == [cores(), 0, 0, 2]


@pytest.fixture
def busy(folder: Path) -> Path:
    (folder / "mine.py").write_text(
        "import time\ndef burn(question, system, context):\n"
        "    end = time.process_time() + 0.2\n"
        "    while time.process_time() < end: pass\n    return str(time.process_time())\n"
    )
    return folder


@pytest.mark.long
async def test_functions_that_compute_leave_the_loop_alone(busy: Path) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async with program(busy, "burn", 2) as made:
        ticking = asyncio.create_task(tick())
        began = time.process_time()
        await asyncio.gather(*(made("Q", "S", CONTEXT) for _ in range(4)))
        ticking.cancel()
    assert ticks > 100
    assert time.process_time() > began  # this process worked meanwhile
