"""Runs as a person finds them: lists in parts and in order, and short names."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.command import Gp

DB = "grpo-practice.db"


def listed(gp: Gp, *words: str) -> list[str]:
    return [run["name"] for run in gp("runs", "list", "--json", *words).document["runs"]]


def test_runs_are_listed_newest_first(demo: Gp) -> None:
    begun = [run.created_at for run in Workspace(DB).runs().runs]
    assert begun == sorted(begun, reverse=True)
    assert listed(demo)[-1] == "demo/eval"  # played before practice


def test_the_list_is_narrowed_by_what_a_run_is(demo: Gp) -> None:
    first, second, practice, plain = listed(demo)
    assert listed(demo, "--kind", "practice") == [practice]
    assert listed(demo, "--dataset", "practice") == [practice]
    assert listed(demo, "--model", "sim") == [first, second, practice, plain]
    assert listed(demo, "--model", "si") == []
    assert listed(demo, "--grep", "DEMO/EVAL/l") == [first, second]
    assert listed(demo, "--grep", "pract") == [practice]  # its dataset
    assert listed(demo, "--grep", "demo/eval", "--last", "1") == [first]


def test_the_highest_score_comes_first_and_runs_without_one_last(demo: Gp) -> None:
    runs = demo("runs", "list", "--sort", "score", "--json").document["runs"]
    scores = [run["score"] for run in runs]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert scores[3:] == [None]
    # `--last` chooses before the order does.
    assert set(listed(demo, "--sort", "score", "--last", "2")) == set(listed(demo)[:2])


def test_a_list_in_which_nothing_matches_says_so(demo: Gp) -> None:
    ran = demo("runs", "list", "--grep", "zebra")
    assert ran.out == "none of the 4 runs matches\nnext: grpo-practice runs list\n"
    assert "  1 of 4 runs" in demo("runs", "list", "--kind", "practice").out.splitlines()


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"kind": "bogus"}, "there is no kind of run 'bogus'"),
        ({"sort": "name"}, "there is no order 'name'"),
        ({"last": 0}, "last=0: should be 1 or more"),
    ],
)
def test_an_unknown_choice_is_an_error(demo: Gp, choice: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        Workspace(DB).runs(**choice)


@pytest.mark.parametrize("words", [("runs", "show"), ("rollouts", "list"), ("runs", "diagnose")])
def test_the_beginning_of_a_name_is_enough(demo: Gp, words: tuple[str, ...]) -> None:
    newest = listed(demo)[0]
    whole = demo(*words, newest)
    assert demo(*words, newest[:-3]).out == whole.out


def test_the_beginning_of_a_part_stands_for_the_run_above_the_others(demo: Gp) -> None:
    assert demo("runs", "show", "demo/ev").out == demo("runs", "show", "demo/eval").out
    assert demo("runs", "show", "dem").out == demo("runs", "show", "demo").out
    shown = demo("rollouts", "list", "dem:1")
    assert (shown.code, shown.out.replace("dem:1", "demo:1")) == (
        0,
        demo("rollouts", "list", "demo:1").out,
    )
    assert demo("experiences", "list", "--run", "d").code == 0
    assert demo("report", "d", "-o", "-").out.count("<h1") == 1


def test_an_experiment_stands_for_its_only_run(demo: Gp) -> None:
    words = (
        "--dataset",
        "test",
        "--limit",
        "1",
        "--model",
        "sim",
        "--exp-id",
        "alone",
        "--verify",
        "math",
    )
    assert demo("eval", *words).code == 0
    assert Workspace(DB).run("alone").run.exp_id == "alone"
    assert demo("eval", *words, "--verify", "contains").code == 0
    with pytest.raises(Exception, match="'alone' stands for 2 runs") as e:
        Workspace(DB).run("alone")
    assert str(vars(e.value)["hint"]).count("alone/eval") == 2


def test_a_beginning_of_several_names_is_refused_with_all_of_them(demo: Gp) -> None:
    first, second, *_ = listed(demo)
    ran = demo("runs", "show", "demo/eval/L")
    assert (ran.code, ran.err) == (
        2,
        f"error: 'demo/eval/L' stands for 2 runs\nhint: name one of them: {first}, {second}\n",
    )


def test_a_miss_suggests_the_runs_that_begin_alike(demo: Gp) -> None:
    first, second, *_ = listed(demo)
    ran = demo("runs", "show", "demo/eval/L000000000000000000")
    assert f"hint: runs that begin alike: {first}, {second}\n" in ran.err


def test_a_short_name_deletes_nothing(demo: Gp) -> None:
    for name in ("dem", listed(demo)[0][:-1]):
        ran = demo("runs", "delete", name, "--yes")
        assert (ran.code, "there is no run" in ran.err) == (2, True)
    assert len(listed(demo)) == 4


def test_a_name_with_a_colon_is_not_read_as_a_step(demo: Gp) -> None:
    words = ("--dataset", "test", "--limit", "1", "--model", "sim", "--exp-id", "e")
    Path("v1.py:8.py").write_text("def f8(sample, **kwargs):\n    return 1.0\n")
    assert demo("eval", *words, "--verify", "v1.py:8.py:f8").code == 0
    whole = "e/eval/model=sim/verify=v1.py:8.py:f8"
    assert demo("runs", "show", whole[:-6]).out == demo("runs", "show", whole).out
    assert demo("rollouts", "list", whole[:-6]).code == 0


def test_an_experiment_does_not_stand_for_the_first_of_its_evaluations(demo: Gp) -> None:
    words = ("eval", "--run", "demo/eval", "--exp-id", "other")
    assert demo(*words).code == 0
    assert demo("runs", "show", "oth").code == 0  # only one run begins so
    assert demo(*words, "--verify", "contains").code == 0
    assert {"other/eval", "other/eval/verify=contains"} <= {*listed(demo)}
    for name in ("oth", "other"):
        assert f"'{name}' stands for 2 runs" in demo("runs", "show", name).err
    assert demo("runs", "show", "other/e").code == 0
