"""What is left of a call that was cancelled, and of what it wrote."""

import asyncio
import os
import resource
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.rollout.tools import Tool
from grpo_practice.rollout.tools.python import cpython as cpython_module
from grpo_practice.rollout.tools.python.captured_output import HEAD, MOST, TAIL, Written, joined
from grpo_practice.rollout.tools.toolbox import OUTPUT_BYTES
from tests.contract.machines import living
from tests.rollout.tools.python.running import opened, said, until


@pytest.fixture(params=("bwrap", "subprocess"))
async def cpython(request: pytest.FixtureRequest) -> AsyncIterator[Tool]:
    async with opened(request.param, timeout_s=20) as tool:
        yield tool


DETACHED = """
import os, sys, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)  # the pipe closes as this becomes another program
        os.execv(sys.executable, ["python", "-c", "import time; time.sleep(60)", "{word}"])
    os._exit(0)
os.close(writer)
os.read(reader, 1)
time.sleep(60)
"""


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="a process that left its group is not found"
)
async def test_a_call_that_is_cancelled_twice_leaves_nothing(
    cpython: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[Process]()

    async def spawned(*args: Any) -> Process:
        started.append(await spawn(*args))
        return started[-1]

    spawn = cpython_module._spawned
    monkeypatch.setattr(cpython_module, "_spawned", spawned)
    word = f"cancelled-{cpython.version}-{os.getpid()}"
    code = DETACHED.format(word=word)
    call = asyncio.create_task(said(cpython, code))
    await until(lambda: living(word))
    for _ in range(2):
        call.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [process.returncode is None for process in started] == [False], "its end was noticed"
    await until(lambda: not living(word))


def test_what_is_kept_of_a_flood_is_small() -> None:
    written = Written()
    for _ in range(200):
        written.add(b"y" * 2**16)
    assert written.flooded
    assert len(written.head) == HEAD
    assert len(written.tail) == TAIL
    text = joined(written, "")
    assert text.endswith(f"\n[stopped: it wrote more than {MOST // 2**20} MiB]")
    assert len(text.encode()) < OUTPUT_BYTES


UNCOUNTED = """
_pids = list
_confine({"memory_mb": 512, "file_mb": 64, "limit_s": 9, "processes": 64})
print(resource.getrlimit(resource.RLIMIT_NPROC))
"""


def test_processes_are_not_limited_where_they_cannot_be_counted() -> None:
    text = cpython_module.program().replace('if __name__ == "__main__":\n    main()', UNCOUNTED)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{resource.getrlimit(resource.RLIMIT_NPROC)}\n"
