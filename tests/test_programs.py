"""The lines that docs/agents.md gives for each library are those that were played."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.programs.__main__ import LIBRARIES, PROGRAMS, TRAINERS

PAGE = (Path(__file__).parents[1] / "docs/agents.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| ([^|]+) \| (.*`context|.*context\..*)$", PAGE, re.MULTILINE))


def plain(code: str) -> str:
    """Leave out how the code is set."""
    return re.sub(r"\s", "", code).replace(",)", ")")


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_the_page_says_of_a_library_is_what_was_played(name: str) -> None:
    program = import_module(f"tests.programs.{name}")
    row = ROWS[str(program.__doc__).strip().removesuffix(".")]
    played = plain(program.AGENT)
    lines = [line for line in re.findall(r"`([^`]+)`", row) if "(" in line or "=" in line]
    assert lines
    for line in lines:
        assert plain(line) in played, line
    assert all(f"context.{key}" in row for key in ("base_url", "api_key", "model"))


def test_every_program_says_what_it_needs() -> None:
    for name in (*PROGRAMS, *TRAINERS):
        assert isinstance(import_module(f"tests.programs.{name}").REQUIRES, tuple)


def test_the_page_has_no_library_that_was_not_played() -> None:
    assert len(ROWS) == len(LIBRARIES)
