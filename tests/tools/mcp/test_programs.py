"""A server over stdio: what its tools are to a model, and what its process is given."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_practice.errors import ConfigError
from grpo_practice.redact import redactor
from grpo_practice.tools import ToolError
from grpo_practice.tools.toolbox import capped
from tests.processes import HANG_S
from tests.tools.mcp.kits import HERE, alive, ask, kit, opened, until


async def test_a_server_of_the_mcp_package_gives_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-somebody-else-123")
    toolkit = kit(program="program.py", env={"ITS_KEY": "one-of-its-own-123"})
    async with opened(toolkit) as tools:
        assert list(tools)[:3] == ["add", "count_up", "environment"]
        add = tools["add"]
        assert add.description == "Adds two numbers."
        assert add.parameters["required"] == ["a", "b"]
        assert (add.runs_in, add.version) == ("mcp teller 1.2.3", "mcp kit")
        assert await ask(add, a=1, b=2) == "3"
        assert await ask(tools["count_up"], n=4) == "4"  # under the name the server knows
        assert await ask(tools["picture"]) == "look:\n[image, image/png, 12 KB]"
        assert await ask(tools["table"]) == '{\n  "rows": 3\n}'
        with pytest.raises(ToolError, match="no such row"):
            await ask(tools["fail"])
        with pytest.raises(ToolError, match="validation error"):
            await ask(add, a="one")
        names = set((await ask(tools["environment"])).split(",")) - {"LC_CTYPE"}
        assert names == {"PATH", "HOME", "ITS_KEY"}
        async with asyncio.timeout(HANG_S):  # one by one, the first would wait for ever
            met = await asyncio.gather(*(ask(tools["together"], n=8) for _ in range(8)))
        assert met == ["done"] * 8


async def test_the_secrets_of_a_server_are_hidden_wherever_it_says_them() -> None:
    toolkit = kit("dies", env={"KEY": "correct-horse-battery-7"})
    with pytest.raises(ConfigError) as raised:
        async with opened(toolkit):
            pass
    assert "the key *** is refused" in str(raised.value)
    assert "toolkits.kit" in str(raised.value)
    assert capped("correct-horse-battery-7") == "***"
    assert "correct-horse-battery-7" in redactor.known


async def test_a_result_is_cut_where_a_model_reads_it_and_no_sooner() -> None:
    async with opened(kit()) as tools:
        text = await ask(tools["say"], n=500_000)
    assert len(text) == 500_000
    assert len(capped(text).encode()) <= 16 * 1024


async def test_it_runs_beside_the_config_unless_that_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for where in ("", "deep"):
        (tmp_path / where / "own.py").write_text((HERE / "crude.py").read_text())
    for cwd in (None, "deep"):
        config = {"command": sys.executable, "args": ["own.py", "well", "notes"], "cwd": cwd}
        async with opened(kit().model_validate({**kit().model_dump(), "config": config}), tmp_path):
            pass
    assert (tmp_path / "notes").exists()
    assert (tmp_path / "deep/notes").exists()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"command": "no-such-program-here"}, "there is no program 'no-such-program-here'"),
        ({"command": "./none"}, "there is no program './none'"),
        ({"command": "true", "cwd": "none"}, "there is no folder"),
        ({"command": "true"}, "it ended at once"),
    ],
)
async def test_a_program_that_cannot_be_a_server_is_named(
    config: dict[str, str], said: str, tmp_path: Path
) -> None:
    toolkit = kit().model_validate({**kit().model_dump(), "config": config})
    with pytest.raises(ConfigError, match=r"toolkits\.kit") as raised:
        async with opened(toolkit, tmp_path):
            pass
    assert said in str(raised.value)


def running(body: str) -> subprocess.Popen[str]:
    """A program of its own that has a toolkit open."""
    code = f"""
import asyncio
from tests.tools.mcp.kits import ask, kit, opened
async def main():
    async with opened({body}
asyncio.run(main())
"""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=HERE.parents[2], text=True)


def test_nothing_a_server_writes_reaches_the_terminal() -> None:
    with running("""kit("noisy")) as tools:
        print(len(await ask(tools["say"])))""") as run:
        assert run.communicate(timeout=HANG_S) == ("1\n", "")


async def test_a_server_that_does_not_end_by_itself_is_ended() -> None:
    async with opened(kit("deaf")) as tools:
        pid = int(await ask(tools["pid"]))
        assert alive(pid)
    assert not alive(pid)


async def test_a_cancelled_run_leaves_no_server(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    pids: asyncio.Queue[int] = asyncio.Queue()

    async def run() -> None:
        async with opened(kit("deaf", str(notes))) as tools:
            pids.put_nowait(int(await ask(tools["pid"])))
            await ask(tools["sleep"], s=30)

    task = asyncio.create_task(run())
    pid = await pids.get()
    await until(lambda: "sleep" in notes.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)


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
