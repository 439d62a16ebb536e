"""A slip of the finger is met with the name that was meant."""

from pathlib import Path

import pytest

from grpo_practice.text import nearest, nearest_file
from tests.cli.conftest import Gp

ASKED = ("--model", "sim", "--verify", "math")


@pytest.mark.parametrize(
    ("words", "code", "meant"),
    [
        (("data", "show", "pratcice"), 4, "practice"),
        (("eval", *ASKED, "--dataset", "Tset"), 4, "test"),
        (("eval", *ASKED, "--dataset", "mien.jsonl"), 4, "mine.jsonl"),
        (("data", "upload", "mine.josnl", "--name", "d"), 4, None),  # no format is known by it
        (("data", "upload", "mime.jsonl", "--name", "d"), 4, "mine.jsonl"),
        (("data", "upload", "other.jsonl", "--name", "d"), 4, None),
        (("runs", "show", "dmeo"), 2, "demo"),
        (("export-agent", "--run", "demmo"), 2, "demo"),
        (("practice", "--config", "practice.yaml", "--from", "hnad.yaml"), 2, "hand.yaml"),
        (("eval", *ASKED, "--dataset", "test", "--agent", "agnet.yaml"), 2, "agent.yaml"),
        (("serve", "--agent", "agnet.yaml"), 2, "agent.yaml"),
        (("practice", "--config", "pratice.yaml"), 2, "practice.yaml"),
    ],
)
def test_the_nearest_name_is_asked_for(
    demo: Gp, words: tuple[str, ...], code: int, meant: str | None
) -> None:
    Path("mine.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    for name in ("hand.yaml", "agent.yaml"):
        Path(name).write_text("- 'A: b.'\n")
    ran = demo(*words)
    assert ran.code == code, ran.err
    assert (f"hint: did you mean {meant}?" in ran.err) == bool(meant), ran.err


def test_a_published_dataset_is_fetched_and_no_other_year_is_meant(demo: Gp) -> None:
    Path("a.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    assert demo("data", "upload", "a.jsonl", "--name", "AIME24").code == 0
    assert "hint: grpo-practice data download AIME25" in demo("data", "show", "AIME25").err


def test_nothing_near_is_not_guessed(demo: Gp) -> None:
    assert "hint: runs: " in demo("runs", "show", "quite-another").err
    upload = "hint: grpo-practice data upload practice.jsonl --name quite-another"
    assert upload in demo("data", "show", "quite-another").err
    assert nearest("x", []) is None
    assert nearest_file(Path("gone") / "x.yaml") is None
