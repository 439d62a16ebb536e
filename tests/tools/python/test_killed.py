"""When this program is killed outright, what it had started ends too."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tools.python.running import bwrap_works, children, living, processes, until

PARENT = """
import asyncio, sys
from pathlib import Path
from grpo_practice.config.schema.tools import PythonConfig
from grpo_practice.tools.python import open_python
from tests.tools.fakes import SCOPE

async def main():
    config = PythonConfig(backend=sys.argv[1], timeout_s=float(sys.argv[3]))
    async with open_python(config, Path()) as (tool,):
        print("open", flush=True)
        await tool.run({"code": sys.argv[2]}, SCOPE)

asyncio.run(main())
"""
DETACHED = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execv(sys.executable, ["python", "-c", "import time; time.sleep(60)", "%s" + "word"])
    os._exit(0)
time.sleep(60)
"""


def held(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@contextmanager
def running(
    backend: str, code: str, temp: Path, limit_s: int = 60
) -> "Iterator[subprocess.Popen[bytes]]":
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", PARENT, backend, code, str(limit_s)]
    env = os.environ | {"TMPDIR": str(temp)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=env) as parent:
        assert parent.stdout is not None
        assert parent.stdout.read(4) == b"open"
        try:
            yield parent
        finally:
            parent.kill()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["bwrap", "subprocess"])
async def test_what_code_has_detached_is_killed_with_the_program(
    backend: str, tmp_path: Path
) -> None:
    if backend == "bwrap" and not bwrap_works():
        pytest.skip("bwrap does not work on this machine")
    word = f"killed-{backend}-{os.getpid()}-"
    with running(backend, DETACHED % word, tmp_path) as parent:
        await until(lambda: living(f"{word}word"))
        assert len(held(tmp_path)) == (backend == "subprocess")
        parent.kill()
        await until(lambda: not living(f"{word}word"))
    await until(lambda: not held(tmp_path))


@pytest.mark.slow
async def test_a_worker_of_monty_ends_with_the_time_it_has(tmp_path: Path) -> None:
    with running("monty", "while True: pass", tmp_path, limit_s=2) as parent:
        await until(lambda: children(parent.pid))
        workers = {p.number for p in children(parent.pid)}
        parent.kill()
        await until(lambda: not workers & {p.number for p in processes()})
