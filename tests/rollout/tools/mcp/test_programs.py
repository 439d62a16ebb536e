"""A server over stdio: what its tools are to a model, and what its process is given."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys

import pytest

from tests.processes import HANG_S, alive
from tests.rollout.tools.mcp.kits import HERE, until

PRCTL = hasattr(ctypes.CDLL(None), "prctl")


def running(body: str) -> subprocess.Popen[str]:
    """A program of its own that has a toolkit open."""
    code = f"""
import asyncio
from tests.rollout.tools.mcp.kits import ask, kit, opened
async def main():
    async with opened({body}
asyncio.run(main())
"""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=HERE.parents[1], text=True)


@pytest.mark.long
@pytest.mark.skipif(not PRCTL, reason="no child learns of our death without prctl")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_a_killed_program_leaves_no_server(number: int) -> None:
    with running("""kit("deaf")) as tools:
        print(await ask(tools["pid"]), flush=True)
        await ask(tools["sleep"], s=60)""") as run:
        assert run.stdout
        pid = int(await asyncio.to_thread(run.stdout.readline))
        assert alive(pid)
        os.kill(run.pid, number)
        assert await asyncio.to_thread(run.wait, HANG_S)
    await until(lambda: not alive(pid))
