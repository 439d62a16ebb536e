"""Wherever programs run, the results are the same, and a run goes on in another place."""

import asyncio
import sys
from pathlib import Path

import pytest

from grpo_practice.errors import PausedError
from grpo_practice.llm.budget import Caps
from tests.agents.custom.test_kill import AGENT
from tests.app.project import Project

FUNCTION = ("type=python", "function=mine.py:solve")
COMMAND = ("type=command", f"command=[{sys.executable}, mine.py]")
THREADS = (*FUNCTION, "workers=0")
WAYS = {
    "workers": (*FUNCTION, "workers=3"),
    "one at a time": (*FUNCTION, "workers=3", "concurrency=1"),
    "commands": COMMAND,
    "a fixed address": (*COMMAND, "concurrency=9", "proxy.host=localhost"),
}


def project(folder: Path) -> Project:
    made = Project(folder)
    (folder / "mine.py").write_text(AGENT, "utf-8")
    return made


def keys(way: tuple[str, ...]) -> list[str]:
    return [f"evaluation.agent.{key}" for key in way] + ["practice.epochs=1"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = project(tmp_path_factory.mktemp("threads") / "p")
    asyncio.run(made.practise(*keys(THREADS)))
    return made.results()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_the_results_are_the_same(
    tmp_path: Path, way: tuple[str, ...], expected: str
) -> None:
    made = project(tmp_path / "p")
    await made.practise(*keys(way))
    assert made.results() == expected


async def test_a_run_goes_on_in_another_place(tmp_path: Path, expected: str) -> None:
    made = project(tmp_path / "p")
    made.caps = Caps(requests=40)
    with pytest.raises(PausedError):
        await made.practise(*keys(WAYS["workers"]))
    made.caps = Caps()
    await made.practise(*keys(THREADS))
    assert made.results() == expected
