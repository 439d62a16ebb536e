"""The program as a person runs it, and a finished demo to look at."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.advice import commands_in, why_not
from tests.contract.command import Gp, Ran, process, typed

VARIABLES = (
    *(
        f"{role}_LLM_{name}"
        for role in ("UTU", "JUDGE")
        for name in ("TYPE", "MODEL", "BASE_URL", "API_KEY")
    ),
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "GRPO_PRACTICE_DB", "COLUMNS"),
)
"""Variables that the program reads, none of which a test inherits."""


@pytest.fixture(autouse=True)
def _patient(patient: None) -> None:
    """Give verify functions as much time as a busy machine takes."""


@pytest.fixture
def gp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gp:
    """Return a function that runs `grpo-practice WORDS…` in an empty folder, in this process.

    Each command that it tells a person to type next has to be one that can be typed as it stands.
    """
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def ran(*words: str) -> Ran:
        ran = typed(*words)
        for command in [*commands_in(ran.out), *commands_in(ran.err)]:
            assert (command, why_not(command)) == (command, None)
        return ran

    return ran


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def gp_process(gp: Gp) -> Iterator[Start]:
    """Return a function that starts `grpo-practice WORDS…` in a process, killed after the test."""
    started = list["subprocess.Popen[str]"]()

    def start(*words: str, **options: Any) -> "subprocess.Popen[str]":
        started.append(process(*words, **options))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


@pytest.fixture(scope="session")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with everything `demo --keep` leaves; not to be changed.

    The first of the parallel workers that needs it makes it for all.
    """
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    with (place / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = place / "demo"
        if not folder.exists():
            assert typed("demo", "--keep", str(folder)).code == 0
    return folder


@pytest.fixture
def demo(finished_demo: Path, tmp_path: Path, gp: Gp) -> Gp:
    """Return `gp` in a copy of the finished demo's folder."""
    shutil.copytree(finished_demo, tmp_path, dirs_exist_ok=True)
    return gp
