"""The documents of one story are the golden ones, and every command has one."""

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.contract.golden import STORY, file_of, made
from tests.contract.help import commands

WITHOUT = {("demo",), ("train",)}
"""Commands of the story without a document: `demo` has none, `train` needs torch."""


def test_each_document_is_its_golden_one(
    gp: Gp, finished_demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = made(finished_demo, tmp_path)
    assert {file_of(name) for name in STORY} == set(file_of("x").parent.iterdir())
    changed = [
        line
        for name, text in texts.items()
        for line in unified_diff(
            file_of(name).read_text("utf-8").splitlines(), text.splitlines(), name, "now", n=1
        )
    ]
    assert "\n".join(changed) == "", (
        "if this is meant: python -m tests.contract.golden, and look at the diff"
    )


def test_every_command_has_a_golden_document() -> None:
    typed = {
        words for words in commands() for given in STORY.values() if words == given[: len(words)]
    }
    there = set(commands())
    assert there - typed == WITHOUT & there, "it needs a row in STORY of tests/contract/golden.py"
