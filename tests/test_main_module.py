"""The first second of a command, before anything of it is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import HANG_S

INTERRUPTED = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
from grpo_practice.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "grpo_practice.core.redact", "grpo_practice.main"])
def test_an_interrupt_during_the_imports_is_one_word(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module), "runs", "list"],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "stopped\n")


WINDOWS = """
import os, runpy, sys

os.name, sys.modules["fcntl"] = "nt", None
{start}
"""


@pytest.mark.parametrize(
    "start",
    [
        "runpy.run_module('grpo_practice', run_name='__main__')",
        "from grpo_practice.__main__ import main; main()",
    ],
)
def test_windows_is_refused_with_one_sentence(start: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WINDOWS.format(start=start), "runs", "list"],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    said = "error: grpo-practice runs on Linux and macOS; on Windows, use WSL\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", said)


def test_make_refuses_an_old_python_before_it_installs_anything(tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    code = "import sys; sys.version_info = (3, 10, 12); exec(sys.argv[1])"
    old.write_text(f'#!/bin/sh\nshift; exec {sys.executable} -c "{code}" "$1"\n')
    old.chmod(0o755)
    project = Path(__file__).parents[1]
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((project / name).read_bytes())
    ran = subprocess.run(
        ["make", "test", f"PYTHON={old}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    said = f"error: Python 3.11 or newer is needed, and {old} is 3.10\n"
    assert said + "hint: make test PYTHON=python3.11\n" in ran.stderr
    assert not (tmp_path / ".venv").exists()
