"""`experiences approve` and `reject`, and each command that is said to be typed next, typed."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_practice import Workspace
from tests.contract.advice import next_words
from tests.contract.command import Gp

WORDS = ("practice", "--config", "practice.yaml", "--exp-id", "held", "--set")
PRACTISE = (*WORDS, "practice.do_eval=false", "--set", "practice.approve=true")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is left by a run that holds all that it learnt, once a test has needed it."""
    return tmp_path_factory.mktemp("held") / "kept"


@pytest.fixture
def held(demo: Gp, tmp_path: Path, kept: Path) -> Iterator[Gp]:
    """`gp` where a run holds all that it learnt."""
    if kept.exists():
        shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    else:
        assert demo(*PRACTISE, "--epochs", "1").code == 0
        shutil.copytree(tmp_path, kept)
    yield demo
    assert demo("db", "check").code == 0


def waiting(gp: Gp) -> list[str]:
    found = gp("experiences", "list", "--run", "held", "--json").document["held"]
    return [one["id"] for one in found]


def test_each_next_command_leads_from_a_held_run_to_the_exported_agent(held: Gp) -> None:
    names = waiting(held)
    assert len(names) > 1
    again = held(*PRACTISE, "--epochs", "1")
    assert re.search(
        rf"\bheld  +{len(names)} texts awaiting approval, not yet in a library: ", again.out
    )
    assert "new experiences are held for approval" in again.out
    assert next_words(again.out) == next_words(held("runs", "show", "held").out)
    for n, name in enumerate(names, 1):
        listed = held(*next_words(again.out))
        assert f"{len(names) - n + 1} text" in listed.out
        assert next_words(listed.out) == ["experiences", "approve", name, "--run", "held"]
        again = held(*next_words(listed.out))
        assert f"{name} approved as E{n}: " in again.out
    assert next_words(again.out) == ["eval", "--arms", "none,full", "--run", "held"]
    compared = held(*next_words(again.out))
    assert "\nfull  held/eval/" in compared.out
    exported = held("export-agent", "--run", "held", "-o", "held-enhanced.yaml")
    assert exported.code == 0
    texts = held("experiences", "list", "--run", "held", "--json").document["experiences"]
    written = Path("held-enhanced.yaml").read_text()
    assert all(one["text"] in written for one in texts)
    assert next_words(held("runs", "show", "held").out)[0] == "experiences"
    shown = held("experiences", "show", "E1", "--run", "held")
    assert "approved  held since step 0" in shown.out


def test_what_is_approved_is_evaluated_and_the_rest_is_not(held: Gp) -> None:
    def evaluated() -> int:
        name = f"{len(list(Path().glob('*.yaml')))}.yaml"
        assert held("export-agent", "--run", "held", "-o", name).code == 0
        words = ("eval", "--agent", name, "--dataset", "test", "--limit", "1", "--verify", "math")
        assert held(*words).code == 0
        with Workspace("grpo-practice.db") as workspace:
            run = workspace.runs().runs[0].name
            (rollout, *_) = workspace.rollouts(run)
        system = rollout.transcript[0]["content"]
        return sum(text in system for text in texts)

    document = held("experiences", "list", "--run", "held", "--json").document
    texts = [one["text"] for one in document["held"]]
    assert evaluated() == 0
    assert held("experiences", "approve", waiting(held)[0], "--run", "held").code == 0
    assert evaluated() == 1


def test_rejecting_all_leads_to_nothing_held(held: Gp) -> None:
    ran = held("experiences", "reject", "--all", "--run", "held")
    assert ran.out.count(" rejected: ") == len(ran.out.splitlines()) - 1
    assert next_words(ran.out) == ["runs", "show", "held"]
    assert held(*next_words(ran.out)).code == 0
    assert waiting(held) == []
    assert "held has no held texts" in held("experiences", "approve", "--all", "--run", "held").out


def test_the_document_of_a_decision(held: Gp) -> None:
    first, *rest = waiting(held)
    words = ("experiences", "approve", first.lower(), first[1:], "--run", "held", "--json")
    document = held(*words).document
    (one,) = document.pop("decided")
    assert (one["id"], one["op"]) == (first, "ADD")
    library = held("experiences", "list", "--run", "held", "--json").document["library"]
    assert document == {
        "schema": "grpo-practice.decision/1",
        "run": "held",
        "approved": True,
        "experiences": {first: "E1"},
        "waits": False,
        "library": library,
        "left": len(rest),
        "measure": {"after": "grpo-practice eval --arms none,full --run held"},
        "next": "grpo-practice experiences list --run held",
        "exit": 0,
    }
    assert held(*PRACTISE, "--epochs", "1", "--json").document["held"] == len(rest)
    assert held("runs", "show", "held", "--json").document["held"] == len(rest)


@pytest.mark.long_after(3)
@pytest.mark.parametrize("words", [(), ("--all", "H1"), ("H999999",), ("x",), ("E1",)])
@pytest.mark.parametrize("command", ["approve", pytest.param("reject", marks=pytest.mark.long)])
def test_what_names_nothing_that_is_held_says_how_to_see_it(
    held: Gp, command: str, words: tuple[str, ...]
) -> None:
    ran = held("experiences", command, *words)
    assert (ran.code, ran.out) == (2, "")
    assert held(*next_words(ran.err, "hint: ")).code == 0


def test_a_text_that_the_library_has_is_rejected_as_the_hint_says(held: Gp) -> None:
    text = "practice.approve=false"
    assert held(*WORDS, "practice.do_eval=false", "--set", text, "--epochs", "2").code == 0
    ran = held("experiences", "approve", "--all", "--run", "held")
    assert "says exactly this" in ran.err
    assert held(*next_words(ran.err, "hint: ")).code == 0


@pytest.mark.parametrize("name", ["held:0", "held@3"])
def test_what_is_decided_is_decided_for_the_run_as_it_stands(held: Gp, name: str) -> None:
    ran = held("experiences", "approve", "--all", "--run", name)
    assert (ran.code, ran.out) == (2, "")
    assert "leave out the branch and the step: held" in ran.err


def test_what_is_approved_in_the_middle_of_a_step_is_said_to_wait(held: Gp) -> None:
    paused = held(*PRACTISE, "--epochs", "2", "--max-requests", "1")
    assert paused.code == 6
    first = waiting(held)[0]
    ran = held("experiences", "approve", first, "--run", "held")
    assert "the texts will enter the library when the open step closes" in ran.out
    assert held(*next_words(ran.out)).code == 0
    listed = held("experiences", "list", "--run", "held").out
    assert "approved  yes; the text enters the library when the open step closes" in listed


def test_a_held_text_is_shown_whole_by_its_name(held: Gp) -> None:
    (name, *_) = waiting(held)
    shown = held("experiences", "show", name.lower(), "--run", "held")
    assert shown.code == 0
    document = held("experiences", "show", name, "--run", "held", "--json").document
    (one,) = document["held"]
    assert all(part in " ".join(shown.out.split()) for part in (one["text"], *one["questions"]))
    assert next_words(shown.out) == ["experiences", "approve", name, "--run", "held"]
    for other in ("H999", "X1"):
        missing = held("experiences", "show", other, "--run", "held")
        assert (missing.code, other in missing.err) == (2, True)
        assert held(*next_words(missing.err, "…: " if other == "X1" else "hint: ")).code == 0
