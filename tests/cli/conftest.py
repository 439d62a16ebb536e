"""The program as a person runs it, and a finished demo to look at."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.cli.main import run
from tests.cli.advice import commands_in, why_not


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found


Gp = Callable[..., Ran]


@pytest.fixture
def gp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gp:
    """Runs `grpo-practice WORDS…` in an empty folder, with an environment that says nothing.

    Whatever it tells a person to type next has to be a command that can be typed as it stands.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("LLM_MODEL", "LLM_BASE_URL", "LLM_API_KEY"):
        for role in ("UTU", "JUDGE"):
            monkeypatch.delenv(f"{role}_{name}", raising=False)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GRPO_PRACTICE_DB", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def ran(*words: str) -> Ran:
        capsys.readouterr()
        code = run(list(words))
        ran = Ran(code, *capsys.readouterr())
        for command in [*commands_in(ran.out), *commands_in(ran.err)]:
            assert (command, why_not(command)) == (command, None)
        return ran

    return ran


@pytest.fixture(scope="session")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything `demo --keep` leaves; not to be changed."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    assert run(["demo", "--keep", str(folder)]) == 0
    return folder


@pytest.fixture
def demo(finished_demo: Path, tmp_path: Path, gp: Gp) -> Gp:
    """`gp` in a copy of the finished demo's folder."""
    shutil.copytree(finished_demo, tmp_path, dirs_exist_ok=True)
    return gp
