"""`workdir: rollout`: a server whose state is a file has a folder for each rollout."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.tools import McpToolkit
from grpo_practice.core.errors import AgentError
from tests.contract.project import served
from tests.processes import alive
from tests.processes import until as wait_until
from tests.rollout.tools.fakes import SCOPE, FakeLedger, box
from tests.rollout.tools.mcp.kits import HERE, opened
from tests.rollout.tools.mcp.test_run import calling, overrides, project_of


def notebook(stateful: bool = True, **more: Any) -> McpToolkit:
    config = {"command": sys.executable, "args": ["notebook.py"], **more}
    kit = {"name": "notes", "mode": "mcp", "config": config, "stateful": stateful}
    return McpToolkit.model_validate(kit)


def here(folder: Path) -> Path:
    """Put the server where the config would be."""
    (folder / "notebook.py").write_text((HERE / "notebook.py").read_text())
    return folder


async def test_a_rollout_goes_on_with_the_file_that_it_had(tmp_path: Path) -> None:
    ledger, toolkit = FakeLedger(), notebook(workdir="rollout")
    for lines in ("a", "ab"):
        async with (
            opened(toolkit, here(tmp_path)) as tools,
            box(*tools.values(), ledger=ledger).open(SCOPE) as play,
        ):
            results = [await play("write", f'{{"line": "{line}"}}') for line in lines]
    assert [(r.text, r.replayed) for r in results] == [("a\n", True), ("a\nb\n", False)]


async def test_without_it_the_error_says_what_is_shared_and_what_to_do(tmp_path: Path) -> None:
    ledger = FakeLedger()
    async with opened(notebook(), here(tmp_path)) as tools:
        async with box(*tools.values(), ledger=ledger).open(SCOPE) as play:
            await play("write", '{"line": "a"}')
        async with box(*tools.values(), ledger=ledger).open(SCOPE) as play:
            await play("write", '{"line": "a"}')
            with pytest.raises(AgentError, match="beyond the rollout") as raised:
                await play("write", '{"line": "b"}')
    assert "`workdir: rollout` under toolkits.notes.config" in str(raised.value)


async def test_with_it_the_error_does_not_ask_for_it_again(tmp_path: Path) -> None:
    ledger = FakeLedger()
    async with opened(notebook(workdir="rollout"), here(tmp_path)) as tools:
        async with box(*tools.values(), ledger=ledger).open(SCOPE) as play:
            await play("where", "{}")  # another folder each time
        async with box(*tools.values(), ledger=ledger).open(SCOPE) as play:
            await play("where", "{}")
            with pytest.raises(AgentError, match="depend on more than") as raised:
                await play("write", '{"line": "b"}')
    assert "workdir" not in str(raised.value)
    assert "--restart-step" in str(raised.value)


@pytest.mark.long
async def test_a_killed_evaluation_goes_on_and_every_rollout_begins_with_nothing(
    tmp_path: Path,
) -> None:
    args, ask = [str(HERE / "notebook.py")], calling("write", "write", given={"line": "x"})
    config = {"command": sys.executable, "args": args, "workdir": "rollout"}
    project = project_of(tmp_path, stateful=True, config=config)
    async with served(ask) as endpoint:
        run = asyncio.create_task(project.evaluate(*overrides(endpoint), limit=4))
        await endpoint.asked(6)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await project.evaluate(*overrides(endpoint), limit=4)
    (answers,) = zip(*project.query("SELECT response FROM rollout_bodies"), strict=True)
    assert [a.partition("} ")[2].split() for a in answers] == [["x", "x", "x"]] * 4


DRIVER = """
import asyncio, sys
from pathlib import Path
from tests.rollout.tools.fakes import SCOPE, FakeLedger, box
from tests.rollout.tools.mcp.kits import opened
from tests.rollout.tools.mcp.test_workdir import notebook

async def main():
    async with opened(notebook(workdir="rollout", command=sys.argv[2], args=sys.argv[3:])) as tools:
        async with box(*tools.values(), ledger=FakeLedger()).open(SCOPE) as play:
            print((await play("where", "{}")).text, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.long
def test_a_killed_command_leaves_no_folder_and_no_process(tmp_path: Path) -> None:
    # As `npx` does, the program starts the server, and here another that hears of nothing.
    deaf = (
        "import os, time; open(os.environ['PIDS'], 'a').write(f'{os.getpid()} '); time.sleep(600)"
    )
    script = f'{sys.executable} -c "{deaf}" & {sys.executable} {HERE / "notebook.py"}'
    pids = tmp_path / "pids"
    words = ["sh", "-c", f"export PIDS={pids}; {script}"]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), *words],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            assert driver.stdout is not None
            folder = Path(driver.stdout.readline().strip())
            assert folder.parent == tmp_path
            assert folder.is_dir()
            # Two servers are started, one to list its tools; each has a deaf program beside it.
            wait_until(lambda: pids.exists() and len(pids.read_text().split()) >= 2)
            deaf_pids = [int(pid) for pid in pids.read_text().split()]
        finally:
            driver.kill()
    wait_until(lambda: not folder.exists())
    wait_until(lambda: not any(map(alive, deaf_pids)))
