"""`type: command`: a process for each rollout, and nothing of it is left when that has ended."""

import asyncio
import os
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import AgentError
from grpo_practice.core.redact import ROLLOUT_TOKEN
from grpo_practice.rollout.agents.command import CommandProgram
from tests.processes import alive
from tests.rollout.agents.custom.helpers import CONTEXT, PYTHON

GIVEN = "import json, os, sys, time; given = json.load(sys.stdin); "


_opened = list[CommandProgram]()


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def program(folder: Path, text: str) -> CommandProgram:
    (folder / "agent.py").write_text(textwrap.dedent(text), "utf-8")
    _opened.append(CommandProgram([PYTHON, "agent.py"], folder))
    return _opened[-1]


async def run(folder: Path, text: str, *, question: str = "Q") -> str:
    return await program(folder, text)(question, "S", CONTEXT)


async def gone(pid: int) -> bool:
    """True once there is no such process, before one would end by itself."""
    until = time.monotonic() + PATIENCE_S
    while alive(pid) and time.monotonic() < until:  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.02)
    return not alive(pid)


async def test_it_need_not_read_what_it_is_given(tmp_path: Path) -> None:
    answer = await run(tmp_path, """print('{"answer": "42"}')""", question="Q" * 5_000_000)
    assert answer == "42"
    text = "print(json.dumps({'answer': str(len(given['question']))}))"
    assert await run(tmp_path, GIVEN + text, question="Q" * 5_000_000) == "5000000"


@pytest.mark.parametrize("end", ["sys.exit(3)", "print('?' * 180 + key)"])
async def test_a_key_is_hidden_before_its_text_is_cut(tmp_path: Path, end: str) -> None:
    key = ROLLOUT_TOKEN + "k" * 43
    text = f"key = {key!r}; sys.stderr.write('x' * 3000 + key + 'y' * 1975); {end}"
    with pytest.raises(AgentError) as told:
        await run(tmp_path, GIVEN + text)
    assert "kkkk" not in str(told.value)


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="cannot be run"):
        await CommandProgram(["./nothing"], tmp_path)("Q", "S", CONTEXT)


CHILD = """
    import subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open("pid", "w").write(str(child.pid))
"""
PATIENCE_S = 60.0
"""For what has to happen at once; what is left running sleeps ten times as long."""


async def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    assert await run(tmp_path, CHILD + """    print('{"answer": "42"}')""") == "42"
    assert await gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("deaf", [False, True])
async def test_what_it_started_ends_when_it_is_cancelled(tmp_path: Path, deaf: bool) -> None:
    hears = "    import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    text = CHILD + hears + "    open('ready', 'w'); time.sleep(600)"
    work = asyncio.create_task(run(tmp_path, text))
    async with asyncio.timeout(PATIENCE_S):
        while not (tmp_path / "ready").exists():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)
    work.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([work])
    assert work.cancelled()
    assert await gone(int((tmp_path / "pid").read_text()))


async def test_what_it_started_ends_when_it_is_cancelled_while_it_starts(tmp_path: Path) -> None:
    """It is ready before anybody has listened: the loop had no time for that."""
    work = asyncio.create_task(run(tmp_path, CHILD + "    open('ready', 'w'); time.sleep(600)"))
    for _ in range(2):
        await asyncio.sleep(0)  # there is a process now, and nothing is connected to it yet
    until = time.monotonic() + PATIENCE_S
    while not (tmp_path / "ready").exists() and time.monotonic() < until:
        time.sleep(0.02)  # noqa: ASYNC251 - the loop must not go on
    work.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([work])
    assert work.cancelled()
    assert await gone(int((tmp_path / "pid").read_text()))


async def test_who_left_its_group_and_holds_its_output_is_not_waited_for(tmp_path: Path) -> None:
    text = """
        import subprocess, sys
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        open("pid", "w").write(str(child.pid))
        print('{"answer": "42"}')
    """
    async with asyncio.timeout(PATIENCE_S):
        assert await run(tmp_path, text) == "42"
    os.kill(int((tmp_path / "pid").read_text()), 9)


@pytest.mark.parametrize("turns", [0, 1, 2, 4, 8])
async def test_its_pipes_are_closed_however_often_it_is_cancelled(
    tmp_path: Path, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = list[bool]()
    loop, started = asyncio.get_running_loop(), asyncio.Event()
    start = loop.subprocess_exec

    async def exec_(protocol: Any, *words: Any, **options: Any) -> Any:
        transport, talk = await start(protocol, *words, **options)
        close = transport.close

        def noted() -> None:
            closed.append(True)
            close()

        monkeypatch.setattr(transport, "close", noted)
        started.set()
        return transport, talk

    monkeypatch.setattr(loop, "subprocess_exec", exec_)
    task = asyncio.create_task(run(tmp_path, "import time; time.sleep(60)"))
    await asyncio.wait_for(started.wait(), PATIENCE_S)
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task], timeout=PATIENCE_S)
    assert closed
