"""Results are checked against a server's schemas where no schema can stop the program."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.mcp import result_check
from tests.processes import HANG_S, alive, processes
from tests.rollout.tools.mcp.kits import ask, kit, opened, until
from tests.rollout.tools.mcp.test_programs import running

UNUSED = "the tool's server gave an unusable answer: tool "


async def answer(name: str) -> str:
    """What the model reads of the call."""
    async with opened(kit("hostile", activated_tools=[name])) as tools:
        try:
            return await ask(tools[name])
        except ToolError as e:
            return str(e).removeprefix(UNUSED)


@pytest.mark.long_after(1)
@pytest.mark.parametrize(
    "name", ["pattern", "all", *(pytest.param(n, marks=pytest.mark.long) for n in ("names", "any"))]
)
async def test_a_schema_without_an_end_is_given_up(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_check, "CHECK_S", 0.5)
    assert await answer(name) == f"{name}: the check against its schema takes more than 0.5 s"


async def test_a_check_stops_nothing_else_and_ends_with_its_call(tmp_path: Path) -> None:
    """The loop goes on, so Ctrl-C does: it cancels calls."""
    notes = tmp_path / "notes"
    notes.touch()
    async with opened(kit("hostile", str(notes))) as tools:
        assert await ask(tools["fits"]) == "read"
        endless = asyncio.create_task(ask(tools["pattern"]))
        await until(lambda: "pattern" in notes.read_text())
        for _ in range(3):
            assert await ask(tools["fits"]) == "read"
        assert not endless.done()
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        assert await ask(tools["fits"]) == "read"


@pytest.mark.long
async def test_one_interrupt_ends_a_program_amid_a_check_and_its_worker(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    body = f"""kit("hostile", {str(notes)!r})) as tools:
        await ask(tools["fits"])
        while True:
            try:
                await ask(tools["pattern"])
            except Exception as e:
                assert "takes more than" in str(e)"""
    with running(body) as run:
        await until(lambda: "pattern" in notes.read_text() or run.poll() is not None)
        started = group(run.pid)
        os.kill(run.pid, signal.SIGINT)
        assert await asyncio.to_thread(run.wait, HANG_S) == -signal.SIGINT
    assert started
    await until(lambda: not any(alive(pid) for pid in started))


def group(parent: int) -> set[int]:
    """The processes that one has started, and those that they have."""
    found, parents = {parent}, {process.pid: process.parent for process in processes()}
    for _ in range(4):
        found |= {pid for pid, above in parents.items() if above in found}
    return found - {parent}
