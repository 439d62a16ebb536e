"""A slip of the finger is met with the name that was meant."""

import shlex
from pathlib import Path

import pytest

from grpo_practice.core.text import nearest, nearest_file
from tests.cli.conftest import Gp

STUDENT = "evaluation.agent.model.model_provider.model"
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


def test_a_part_that_is_not_there_is_made_of_the_whole(gp: Gp) -> None:
    assert gp("init", ".").code == 0
    upload = "hint: grpo-practice data upload mine.jsonl --name mine"
    hint = f"{upload}, then grpo-practice data split mine --into train=0.5,test=0.5\n"
    ran = gp("practice", "--config", "practice.yaml", "--set", f"{STUDENT}=sim")
    assert (ran.code, hint in ran.err) == (4, True), ran.err
    assert gp(*shlex.split(upload)[2:]).code == 0
    ran = gp("practice", "--config", "practice.yaml", "--set", f"{STUDENT}=sim")
    split = "hint: grpo-practice data split mine --into train=0.5,test=0.5\n"
    assert (ran.code, split in ran.err) == (4, True), ran.err
    assert gp(*shlex.split(split)[2:]).code == 0
    words = ("practice", "--config", "practice.yaml", "--set", f"{STUDENT}=sim", "--dry-run")
    assert gp(*words).code == 0


@pytest.mark.long_after(1)
@pytest.mark.parametrize("part", ["select", "dev", "valid"])
def test_what_doctor_hints_at_makes_the_part_that_is_not_there(gp: Gp, part: str) -> None:
    assert gp("init", ".").code == 0
    words = ["doctor", "--config", "practice.yaml", "--json", "--set", f"{STUDENT}=sim"]
    words += ["--set", f"practice.select_dataset=mine-{part}"]

    def hints() -> list[str]:
        found = gp(*words).document["findings"]
        uses = {"practice data", "selection data", "evaluation data"}
        return [one["hint"] for one in found if one["about"] in uses and one["severity"] != "ok"]

    for _ in range(3):  # the whole is uploaded, divided, and divided anew
        for command in hints()[-1].split(", then ") if hints() else ():
            assert command.startswith("grpo-practice data ")
            gp(*shlex.split(command)[1:])
    assert hints() == []


def test_nothing_near_is_not_guessed(demo: Gp) -> None:
    assert "hint: runs: " in demo("runs", "show", "quite-another").err
    for name in ("quite-another", "half"):
        Path("half.jsonl").write_text("")
        hint = "data upload half.jsonl --name half" if name == "half" else "data list"
        assert f"hint: grpo-practice {hint}\n" in demo("data", "show", name).err
    Path("hand.yaml").write_text("- 'A: b.'\n")
    said = demo("eval", "--config", "nope.yaml").err
    assert "there is no config nope.yaml" in said
    assert "did you mean" not in said
    assert nearest("x", []) is None
    assert nearest_file(Path("gone") / "x.yaml") is None
