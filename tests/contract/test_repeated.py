"""Comparisons on the same questions are counted, whichever command shows them."""

from pathlib import Path
from typing import Any

import pytest

from tests.contract.command import Gp
from tests.contract.project import change
from tests.contract.test_compare import document

PAIR = ("demo/eval", "demo")


def arms(gp: Gp, names: str, k: int, *words: str) -> None:
    ran = gp("eval", "--arms", names, "--run", "demo", "-k", str(k), *words)
    assert ran.code == 0, ran.err


def contrast_of(gp: Gp, *names: str) -> dict[str, Any]:
    """The first contrast of the runs, with its result in words."""
    compared = document(gp, *names)
    found: dict[str, Any] = compared["contrasts"][0]
    return found | {"conclusion": compared["conclusions"][0]}


def edited(gp: Gp, text: str) -> tuple[str, str]:
    """A library that a person changed, and its evaluation."""
    made = gp("experiences", "edit", "E2", "--text", f"Units: {text}", "--json").document
    ran = gp("eval", "--arms", f"none,{made['library']}", "--run", "demo", "--json")
    return made["library"], ran.document["contrasts"][0]["arm"]


@pytest.mark.long
def test_all_libraries_of_one_practice_are_the_first_comparison(demo: Gp) -> None:
    found = contrast_of(demo, *PAIR)
    assert found["look"]["number"] == 1
    assert found["p_adjusted"] == pytest.approx(found["difference"]["p"] / 0.8)
    assert found["conclusion"]["lines"]["looks at these questions"] == "1"


@pytest.mark.long
def test_more_rollouts_are_another_comparison_and_printing_is_none(demo: Gp) -> None:
    for k, number in ((4, 2), (6, 3)):
        arms(demo, "none,full", k)
        found = contrast_of(demo, *PAIR)
        assert found["look"]["number"] == number
        lines = found["conclusion"]["lines"]
        assert lines["questions"] == f"40 new, {k} attempts each"
        assert lines["looks at these questions"].startswith(
            f"{number}; with each look, a verdict needs"
        )
        share = 0.2 / (number * (number - 1))
        assert found["p_adjusted"] == pytest.approx(min(found["difference"]["p"] / share, 1))
        assert contrast_of(demo, *PAIR) == found
        arms(demo, "none,full", k)  # complete: nothing is asked
        assert contrast_of(demo, *PAIR) == found
    again = demo("eval", "--arms", "none,full", "--run", "demo", "--json").document
    for label in ("difference", "looks at these questions"):
        assert again["conclusions"][0]["lines"][label] == found["conclusion"]["lines"][label]
    for shown in ("demo", found["arm"]):
        assert demo("runs", "show", shown, "--json").document["conclusion"] == found["conclusion"]
    assert demo("report", "demo").code == 0
    assert "3; with each look, a verdict needs" in Path("report.html").read_text("utf-8")


@pytest.mark.long
def test_each_edited_library_is_another_comparison_and_keeps_its_number(demo: Gp) -> None:
    _, first = edited(demo, "name them.")
    found = contrast_of(demo, "demo/eval", first)
    assert found["look"]["number"] == 2
    _, second = edited(demo, "name them first.")
    assert contrast_of(demo, "demo/eval", second)["look"]["number"] == 3
    assert contrast_of(demo, "demo/eval", first)["conclusion"] == found["conclusion"]
    assert contrast_of(demo, *PAIR)["look"]["number"] == 1


@pytest.mark.long
def test_an_interrupted_evaluation_is_compared_once(demo: Gp) -> None:
    arms(demo, "none,full", 4, "--pilot", "15")
    arms(demo, "none,full", 4, "--pilot", "15")
    arms(demo, "none,full", 4)
    assert contrast_of(demo, *PAIR)["look"]["number"] == 2
    arms(demo, "none,full", 6)
    assert contrast_of(demo, *PAIR)["look"]["number"] == 3


@pytest.mark.long
def test_an_evaluation_that_was_given_up_is_no_comparison(demo: Gp) -> None:
    arms(demo, "aa,filler", 2, "--pilot", "15")
    arms(demo, "none,full", 4)
    assert contrast_of(demo, *PAIR)["look"]["number"] == 2


def test_gaps_that_are_filled_are_no_comparison(demo: Gp) -> None:
    of = (
        "SELECT rollout_id FROM rollouts JOIN branches USING (branch_id) WHERE run_id = 'demo/eval'"
    )
    change(f"DELETE FROM verdicts WHERE rollout_id IN ({of} AND slot % 2 = 0)")
    change(f"UPDATE rollouts SET outcome = 'error' WHERE rollout_id IN ({of} AND slot % 2 = 0)")
    change("""UPDATE steps SET sums = NULL, stats = '{"failed": 4}' WHERE branch_id =
                (SELECT head_branch FROM runs WHERE run_id = 'demo/eval')""")
    assert contrast_of(demo, *PAIR)["difference"]["missing"] == 40
    arms(demo, "none,full", 2)
    found = contrast_of(demo, *PAIR)
    assert (found["difference"]["missing"], found["look"]["number"]) == (0, 1)


@pytest.mark.long
def test_an_evaluation_that_reuses_all_answers_is_no_comparison(demo: Gp) -> None:
    library, _ = edited(demo, "name them.")
    assert demo("export-agent", "--run", library, "-o", "edited.yaml").code == 0
    run = demo("eval", "--run", "demo", "--agent", "edited.yaml", "--json").document["run"]
    assert contrast_of(demo, "demo/eval", run)["look"]["number"] == 2
    arms(demo, "none,full", 4)
    assert contrast_of(demo, *PAIR)["look"]["number"] == 3


def test_arms_of_one_command_share_a_comparison_also_where_two_are_shown(demo: Gp) -> None:
    report = demo("eval", "--arms", "none,full,filler", "--run", "demo", "--json").document
    (filler,) = [c for c in report["contrasts"] if c["baseline"] != "demo/eval"]
    assert filler["look"]["number"] == 2
    alone = contrast_of(demo, filler["baseline"], filler["arm"])
    assert alone["p_adjusted"] == pytest.approx(min(2 * alone["difference"]["p"] / 0.1, 1))
