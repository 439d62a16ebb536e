"""A server over stdio: what its tools are to a model, and what its process is given."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from tests.processes import HANG_S
from tests.rollout.tools.mcp.kits import HERE, alive, until


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
@pytest.mark.skipif(sys.platform != "linux", reason="a child learns of our death on Linux alone")
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
