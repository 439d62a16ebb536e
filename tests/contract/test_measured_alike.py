"""A score before and one after are shown together where both asked the same, as the run does."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.advice import next_words
from tests.contract.command import Gp
from tests.contract.project import Project

PRACTISE = ("practice", "-c", "c.yaml", "--epochs", "1", "--set", "evaluation.pass_k=3")
EVALUATE = ("eval", "-c", "c.yaml", "--set", "evaluation.pass_k=3")
QUICK = ("eval", "--model", "sim", "--dataset", "train", "--verify", "contains")
EXPORT = ("export-agent", "--run", "toy", "-o", "enhanced.yaml")


@pytest.fixture
def toy(gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gp:
    """`gp` where a run has practised; another one, that asks otherwise, is the latest."""
    monkeypatch.setenv("GRPO_PRACTICE_DB", str(Project(tmp_path).db))
    assert gp(*PRACTISE).code == 0
    assert gp(*QUICK).code == 0
    return gp


def not_measured(text: str) -> list[str]:
    """The scores that are said to be missing."""
    return re.findall(r"(before|after)(?: .*)? (?:has not been|not) measured$", text, re.M)


def measuring(text: str) -> list[str]:
    """The command that is said to measure them, after `gain` or as what to type next."""
    return next_words(text, "  gain    ") if "  gain    " in text else next_words(text)


def test_an_exported_agent_is_evaluated_as_its_run_was(toy: Gp) -> None:
    ran = toy(*EXPORT)
    assert next_words(ran.err) == ["eval", "--arms", "none,full", "--run", "toy"]
    compared = toy(*next_words(ran.err), "--json").document
    assert [arm["named"] for arm in compared["arms"]] == ["none", "full"]
    assert [arm["k"] for arm in compared["arms"]] == [3, 3]
    shown = toy("runs", "show", compared["arms"][1]["run"], "--json").document
    assert (shown["verify"], shown["dataset"]["name"]) == ("math", "test")


def test_another_experiments_number_of_attempts_is_not_asked_for(toy: Gp) -> None:
    assert toy("eval", "-c", "c.yaml", "--exp-id", "other", "-k", "5").code == 0
    assert measuring(toy(*PRACTISE).out) == ["eval", "--arms", "none,full", "--run", "toy"]


def test_a_run_that_is_named_is_evaluated_without_what_it_learnt(toy: Gp) -> None:
    before = toy("eval", "--run", "toy", "--json").document
    assert (before["run"], before["dataset"]["name"], before["k"]) == ("toy/eval", "test", 3)
    assert before["library"] is None
    both = toy("eval", "--run", "toy", "-c", "c.yaml")
    assert (both.code, "leave one of them out" in both.err) == (2, True)
    near = toy("eval", "--run", "toi")
    assert (near.code, "toy" in near.err) == (2, True)


def quick(gp: Gp) -> None:
    """Evaluate the exported agent on the same questions with fewer attempts."""
    run = gp("eval", "--model", "sim", "--dataset", "test", "--verify", "math", "--json").document
    words = ("eval", "--agent", "enhanced.yaml", "--json")
    assert gp(*words).document["run"] == f"{run['run']}/enhanced"


def part(gp: Gp) -> None:
    """Evaluate it on a part of the questions."""
    assert gp("eval", "--run", "toy", "--agent", "enhanced.yaml", "--limit", "4").code == 0


@pytest.mark.long
@pytest.mark.parametrize("otherwise", [quick, part])
def test_a_score_that_asked_otherwise_is_none_after(
    toy: Gp, otherwise: Callable[[Gp], None]
) -> None:
    before = toy(*EVALUATE, "--json").document
    assert toy(*EXPORT).code == 0
    otherwise(toy)
    ran = toy(*PRACTISE)
    assert not_measured(ran.out) == ["after"]
    again = toy("export-agent", "--run", "toy", "--json").document
    assert (again["before"]["run"], again["after"]) == (before["run"], None)
    assert measuring(ran.out) == ["eval", "--arms", "none,full", "--run", "toy"]
    compared = toy(*measuring(ran.out), "--json").document
    assert [arm["k"] for arm in compared["arms"]] == [3, 3]
    assert [len(c["questions"]) for c in compared["contrasts"]] == [12]
    done = toy(*PRACTISE, "--json").document
    runs = [arm["run"] for arm in compared["arms"]]
    assert [done[when]["run"] for when in ("before", "after")] == runs
    assert done["measure"] == {}


@pytest.mark.long
def test_attempts_that_were_added_to_one_score_are_asked_for_the_other(toy: Gp) -> None:
    assert toy(*EVALUATE).code == 0
    assert toy(*EXPORT).code == 0
    assert toy("eval", "--run", "toy", "--agent", "enhanced.yaml").code == 0
    assert toy(*EVALUATE, "-k", "4").code == 0
    ran = toy(*EXPORT, "--force")
    assert not_measured(ran.err) == ["after"]
    words = ["eval", "--arms", "none,full", "--run", "toy", "-k", "4"]
    assert measuring(ran.err) == words
    assert toy(*words).code == 0
    assert not_measured(toy(*EXPORT, "--force").err) == []


@pytest.mark.long
def test_an_evaluation_that_is_in_the_way_is_begun_anew(toy: Gp) -> None:
    hot = "evaluation.agent.model.model_settings.temperature=0.9"
    assert toy(*EVALUATE, "--set", hot).code == 0
    words = measuring(toy(*PRACTISE).out)
    assert words == ["eval", "--arms", "none,full", "--run", "toy", "--restart-step", "0"]
    assert toy(*words).code == 0
    assert not_measured(toy(*PRACTISE).out) == []


@pytest.mark.long
def test_only_the_evaluation_that_is_in_the_way_is_begun_anew(toy: Gp) -> None:
    assert toy(*EXPORT).code == 0
    assert toy("eval", "--arms", "none,full", "--run", "toy").code == 0
    hot = "evaluation.agent.model.model_settings.temperature=0.9"
    assert toy(*EVALUATE, "--set", hot, "--restart-step", "0").code == 0
    words = measuring(toy(*PRACTISE).out)
    assert words == ["eval", "--run", "toy", "--restart-step", "0"]
    assert toy(*words).code == 0
    assert not_measured(toy(*PRACTISE).out) == []


@pytest.mark.long_after(1)
@pytest.mark.parametrize("step", [(), ("--step", "0")])
def test_what_the_export_says_brings_both_scores_into_the_file(
    toy: Gp, step: tuple[str, ...]
) -> None:
    ran = toy(*EXPORT, *step)
    assert not_measured(ran.err) == ["before", "after"]
    text = Path("enhanced.yaml").read_text("utf-8")
    assert "score with" not in text
    assert toy(*measuring(ran.err)).code == 0
    assert ran.err.index("next: ") < ran.err.index("then, ")
    renewed = toy(*next_words(ran.err, "add the scores to the file: "))
    assert (renewed.code, not_measured(renewed.err)) == (0, [])
    assert "next: " not in renewed.err  # nothing is left to do
    text = Path("enhanced.yaml").read_text("utf-8")
    assert "score without the library" in text
    assert "score with the library" in text


@pytest.mark.long
def test_scoring_again_names_the_run_whose_rollouts_are_scored(toy: Gp) -> None:
    assert toy(*EVALUATE).code == 0
    assert toy(*EXPORT).code == 0
    agent = ("--agent", "enhanced.yaml")
    assert toy("eval", "--model", "sim", "--dataset", "test", "--verify", "math", *agent).code == 0
    assert toy("eval", "--run", "toy", *agent).code == 0
    words = ("eval", "--rejudge", "--verify", "contains", "--run", "toy/eval/enhanced")
    for more in (["--dry-run"], []):
        ran = toy(*words, *more)
        assert ran.code == 0
        name = "toy/eval/enhanced/rejudge=contains"
        assert f"{name}: scores 36 rollouts of toy/eval/enhanced again" in ran.err
        assert "made the same requests" not in ran.err
        assert "12 rollouts" not in ran.err


@pytest.mark.long_after(1)
@pytest.mark.parametrize("function", [("exact",), ("contains",), ("regex", "--param", "pattern=x")])
def test_what_verify_says_next_asks_as_the_project_does(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, function: tuple[str, ...]
) -> None:
    assert gp("init", "mine").code == 0
    monkeypatch.chdir("mine")
    Path(".env").write_text("UTU_LLM_MODEL=sim\n", "utf-8")
    assert gp("data", "upload", "mine.jsonl", "--name", "mine").code == 0
    assert gp("data", "split", "mine", "--into", "train=0.5,test=0.5").code == 0
    after = next_words(gp("verify", *function, "--answer", "x", "--response", "x").out)
    assert after[:3] == ["eval", "--config", "practice.yaml"]
    assert ("--verify" in after) == (function[0] != "exact")
    scored = gp(*after, "--json").document
    assert (scored["dataset"]["name"], scored["score"]["planned"]) == ("mine-test", 180)
    variant = "" if function[0] == "exact" else f"/verify={function[0]}"
    assert scored["run"] == f"my_first_practice/eval{variant}"
