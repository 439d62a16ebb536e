"""The shell completes commands, and the names of runs and datasets, and never says an error."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.command import Gp

ASKED = "_GRPO_PRACTICE_COMPLETE"
"""Variable by which the shell asks for completions, in place of running a command."""


def completed(gp: Gp, monkeypatch: pytest.MonkeyPatch, typed: str) -> list[str]:
    """What bash is given for the last word of a line."""
    with monkeypatch.context() as patch:
        patch.setenv(ASKED, "complete_bash")
        patch.setenv("COMP_WORDS", typed)
        patch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
        ran = gp()
    assert (ran.code, ran.err) == (0, "")
    return ran.out.split()


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("grpo-practice exper", ["experiences"]),
        ("grpo-practice runs show demo/eval/", 2),
        ("grpo-practice runs delete nobody", []),
        ("grpo-practice data show te", ["test"]),
        ("grpo-practice data export ", ["practice", "test"]),
        ("grpo-practice practice --dataset p", ["practice"]),
        ("grpo-practice practice --from dem", 4),
        ("grpo-practice export-agent --run dem", 4),
        ("grpo-practice experiences list --run dem", 4),
        ("grpo-practice eval --rejudge --run dem", 4),
        ("grpo-practice data show --db gone.db te", []),
        ("grpo-practice data show --db broken.db te", []),
    ],
)
def test_names_are_those_of_the_database(
    demo: Gp, monkeypatch: pytest.MonkeyPatch, typed: str, names: list[str] | int
) -> None:
    Path("broken.db").write_bytes(b"SQLite format 3\0 and no more")
    before = sorted(Path().iterdir())
    found = completed(demo, monkeypatch, typed)
    assert (len(found) if isinstance(names, int) else found) == names
    assert sorted(Path().iterdir()) == before


def test_the_database_of_the_environment_is_asked(
    demo: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("grpo-practice.db").rename("other.db")
    assert completed(demo, monkeypatch, "grpo-practice data show ") == []
    monkeypatch.setenv("GRPO_PRACTICE_DB", "other.db")
    assert completed(demo, monkeypatch, "grpo-practice data show ") == ["practice", "test"]


@pytest.mark.long
def test_completion_is_installed_and_works_in_the_shell(tmp_path: Path, demo: Gp) -> None:
    detection = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    program = bin_ / "grpo-practice"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m grpo_practice "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "HOME": str(tmp_path), "PATH": f"{bin_}:{os.environ['PATH']}"}
    command = ["grpo-practice", "--install-completion", "bash"]
    done = subprocess.run(
        command, env=env | detection, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "bash completion installed" in done.stdout
    words = "grpo-practice data show t"
    script = (
        f"source ~/.bashrc; COMP_WORDS=({words}); COMP_CWORD=3;"
        ' _grpo_practice_completion grpo-practice; echo "${COMPREPLY[@]}"'
    )
    shell = ["bash", "--norc", "-c", script]
    done = subprocess.run(shell, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["test"]
