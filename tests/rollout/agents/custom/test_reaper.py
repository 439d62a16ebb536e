"""Commands end when their run's process is killed: nobody else would end them."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_practice.core.reaper import Reaper
from grpo_practice.rollout.agents.command import CommandProgram
from tests.processes import alive, until
from tests.rollout.agents.custom.helpers import CONTEXT, PYTHON

SLEEPER = """
import os, pathlib, signal, subprocess, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
here = pathlib.Path(sys.argv[1])
(here / f"new-{os.getpid()}").write_text(str(child.pid))
(here / f"new-{os.getpid()}").rename(here / f"pid-{os.getpid()}")
time.sleep(600)
"""
DRIVER = """
import asyncio, sys
from pathlib import Path
from grpo_practice.rollout.agents.command import CommandProgram
from tests.rollout.agents.custom.helpers import CONTEXT

async def main():
    program = CommandProgram(sys.argv[2:], Path(sys.argv[1]))
    add = program._reaper.add

    def told(group):
        add(group)
        (Path(sys.argv[1]) / f"told-{group}").touch()

    program._reaper.add = told
    await asyncio.gather(*(program("Q", "S", CONTEXT) for _ in range(5)))

asyncio.run(main())
"""


@pytest.mark.long_after(1)
@pytest.mark.parametrize("how", ["", "deaf"])
def test_a_killed_run_leaves_no_command_behind(tmp_path: Path, how: str) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER, "utf-8")
    words = [PYTHON, str(tmp_path / "sleeper.py"), str(tmp_path), how]
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), *words])
    try:
        # A file is there before its text is.
        until(lambda: sum(bool(path.read_text()) for path in tmp_path.glob("pid-*")) >= 5, driver)
        # A program may begin before the run has told the reaper of it.
        until(lambda: len(list(tmp_path.glob("told-*"))) >= 5, driver)
        files = list(tmp_path.glob("pid-*"))
        groups = [int(path.name.partition("-")[2]) for path in files]
        children = [int(path.read_text("utf-8")) for path in files]
        assert all(map(alive, groups + children))
    finally:
        driver.kill()
        driver.wait()
    until(lambda: not any(map(alive, groups + children)))


async def test_it_ends_with_its_program_and_knows_nobody_who_has_ended(tmp_path: Path) -> None:
    program = CommandProgram([PYTHON, "-c", 'print(\'{"answer": "1"}\')'], tmp_path)
    assert await asyncio.gather(*(program("Q", "S", CONTEXT) for _ in range(3))) == ["1"] * 3
    process = program._reaper._process
    assert process is not None
    program.close()
    assert process.returncode == 0


def test_one_that_is_forgotten_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as kept:
        reaper = Reaper()
        reaper.add(kept.pid)
        reaper.discard(kept.pid)
        reaper.close()
        assert kept.poll() is None
        reaper.add(kept.pid)
        reaper.close()  # as where this process is killed
        assert kept.wait() == -signal.SIGTERM


def test_rollouts_go_on_where_somebody_has_ended_it() -> None:
    reaper = Reaper()
    reaper.add(2**22 + 1)
    assert reaper._process is not None
    os.kill(reaper._process.pid, signal.SIGKILL)
    reaper._process.wait()
    reaper.discard(2**22 + 1)
    reaper.close()
