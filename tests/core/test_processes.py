import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from grpo_practice.core.processes import Pool, isolate
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier
from tests.processes import HANG_S, until

SCRIPT = """
import asyncio, os, pathlib
from grpo_practice.core.types import Sample
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier

print("the script runs")

async def main():
    function = resolve({name!r}, {{}}, 60.0, pathlib.Path())
    async with Verifier(function) as verify:
        print((await verify(Sample("q", "x+1"), "\\\\boxed{{1+x}}", None)).reward)

asyncio.run(main())
"""


@pytest.mark.long_after(1)
@pytest.mark.parametrize("name", ["math", "mine.py:check"])
def test_a_script_that_runs_whenever_it_is_imported_is_not_run_again_by_workers(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(name=name))
    (tmp_path / "mine.py").write_text("def check(sample, **kwargs):\n    return {'reward': 1}\n")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "the script runs\n1.0\n", done.stderr


KILLED = """
import asyncio, os, signal
from grpo_practice.core.processes import Pool, isolate

asyncio.run(Pool(isolate, workers=1, timeout_s=None, preload=[]).run(os.getpid))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_command_leaves_no_folder_of_its_workers(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: not any(tmp_path.iterdir()))


@pytest.mark.parametrize("name", ["math", "exact"])
def test_what_workers_start_from_exists(name: str) -> None:
    pool = Verifier(resolve(name, {}, None, Path()))._pool
    for module in pool._preload:  # the process they are copied from is silent about a wrong name
        import_module(module)


def test_a_test_that_hangs_becomes_a_failure_after_its_own_limit(
    pytestconfig: pytest.Config,
) -> None:
    assert float(pytestconfig.getini("faulthandler_timeout")) > HANG_S
    assert pytestconfig.getini("faulthandler_exit_on_timeout") is True


async def test_a_worker_does_not_leave_the_signal_of_its_end_to_the_system() -> None:
    pool = Pool(isolate, workers=1, timeout_s=None, preload=[])
    handler = f"__import__('ctypes').CDLL(None).signal({signal.SIGIO:d}, 0)"
    assert await pool.run(eval, handler), "macOS ignores the signal by default"
    await pool.close()
