"""`runs compare`: what stands behind an arm, and what else it says about the two."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.contract.command import Gp
from tests.contract.project import DB, change
from tests.contract.test_compare import document

ARMS = ("eval", "--arms", "none,full", "--run")
PAIR = ("demo/eval", "demo")
EVAL = ("eval", "--dataset", "test", "--verify", "math", "--json")


def practise(gp: Gp, exp_id: str, dataset: str, *words: str) -> None:
    keys = ("practice.do_eval=false", f"data.practice_dataset_name={dataset}")
    sets = [word for key in keys for word in ("--set", key)]
    words = ("practice", "-c", "practice.yaml", "--exp-id", exp_id, *sets, *words)
    assert gp(*words).code == 0


def evaluate(gp: Gp, instructions: str, exp_id: str) -> str:
    """The name of an evaluation of an agent with these instructions."""
    agent = {
        "agent": {"name": exp_id, "instructions": instructions},
        "model": {"model_provider": {"model": "sim"}},
    }
    Path("written.yaml").write_text(json.dumps(agent))
    found: str = gp(*EVAL, "--agent", "written.yaml", "--exp-id", exp_id).document["run"]
    return found


@pytest.mark.long
def test_a_library_of_an_earlier_branch_has_practised_on_its_own_questions(demo: Gp) -> None:
    practise(demo, "anew", "test")
    assert demo(*ARMS, "anew").code == 0
    compared = document(demo, "anew/eval", "anew")
    (contrast,) = compared["contrasts"]
    library = contrast["arm"]
    assert contrast["known"] == 40
    all_of_them = "40, 2 attempts each, all of them practised on or used to select a library"
    assert compared["conclusions"][0]["lines"]["questions"] == all_of_them
    practise(demo, "anew", "practice", "--restart-step", "0")
    assert document(demo, "anew/eval", library)["contrasts"][0]["known"] == 40


@pytest.mark.long
@pytest.mark.parametrize("source", ["first@{}", "first.json"])
def test_a_library_that_was_imported_has_practised_where_it_was_made(demo: Gp, source: str) -> None:
    practise(demo, "first", "test")
    assert demo("export-agent", "--run", "first", "-o", "first.json").code == 0
    practise(demo, "first", "practice", "--restart-step", "0")
    with closing(sqlite3.connect(DB)) as db:
        (earlier,) = db.execute("SELECT min(branch_id) FROM branches WHERE run_id = 'first'")
    practise(demo, "second", "practice", "--from", source.format(*earlier))
    assert demo(*ARMS, "second").code == 0
    assert document(demo, "second/eval", "second")["contrasts"][0]["known"] == 40


@pytest.mark.long
def test_an_exported_agent_may_have_been_chosen_among_several(demo: Gp) -> None:
    for ref, name in (("demo:0", "early"), ("demo", "last")):
        assert demo("export-agent", "--run", ref, "-o", f"{name}.yaml").code == 0
    words = (*EVAL, "--exp-id", "elsewhere", "-k", "2", "--agent")
    early, last = (demo(*words, f"{name}.yaml").document["run"] for name in ("early", "last"))
    (contrast,) = document(demo, "demo/eval", early)["contrasts"]
    notes = " ".join(contrast["notes"])
    assert f"{early} is not the last library of demo, and 3 of them were scored" in notes
    assert "they also differ in" not in notes
    (contrast,) = document(demo, "demo/eval", last)["contrasts"]
    assert "last library" not in " ".join(contrast["notes"])
    for one, other in ((early, last), (last, early)):
        notes = " ".join(document(demo, one, other)["contrasts"][0]["notes"])
        assert f"{early} is not the last library" in notes
        assert "they also differ in" not in notes


def names_of(contrasts: list[dict[str, Any]]) -> set[str]:
    return {one[side] for one in contrasts for side in ("baseline", "arm")}


def every_evaluation(gp: Gp) -> list[str]:
    runs = gp("runs", "list", "--json").document["runs"]
    return [run["name"] for run in runs if run["kind"] == "eval"]


@pytest.mark.long
def test_arms_that_are_no_result_of_practice_were_chosen_among_nothing(demo: Gp) -> None:
    names = "none,full,direct,filler"
    contrasts = demo("eval", "--arms", names, "--run", "demo", "--json").document["contrasts"]
    assert len(contrasts) == 3
    assert "last library" not in " ".join(note for one in contrasts for note in one["notes"])
    earlier = next(run for run in every_evaluation(demo) if run not in names_of(contrasts))
    (contrast,) = document(demo, "demo/eval", earlier)["contrasts"]
    assert "and 2 of them were scored on these questions" in " ".join(contrast["notes"])


def test_instructions_that_go_on_are_another_difference(demo: Gp) -> None:
    one, other = evaluate(demo, "Solve.", "one"), evaluate(demo, "Solve. Check it twice.", "other")
    (contrast,) = document(demo, one, other)["contrasts"]
    said = "they also differ in agent.agent.instructions: Solve. → Solve. Check it twice."
    assert said in contrast["notes"]
    assert "agent.agent.name" not in " ".join(contrast["notes"])


def test_what_failed_takes_neither_cost_nor_tokens_from_an_answer(demo: Gp) -> None:
    change("UPDATE rollouts SET cost_micro = 2000")
    change(
        """UPDATE rollouts SET cost_micro = 5000 WHERE branch_id =
             (SELECT head_branch FROM runs WHERE run_id = 'demo/eval')"""
    )
    failed = """(SELECT rollout_id FROM rollouts JOIN branches b USING (branch_id)
                  WHERE b.run_id = 'demo/eval' ORDER BY 1 LIMIT 1)"""
    change("UPDATE steps SET sums = NULL")
    change(f"DELETE FROM verdicts WHERE rollout_id IN {failed}")
    change(
        f"""UPDATE rollouts SET cost_micro = NULL, tokens_in = NULL, outcome = 'error',
             reason = 'provider', error = 'HTTP 500' WHERE rollout_id IN {failed}"""
    )
    found = document(demo, *PAIR)
    assert [arm["cost_usd_per_answer"] for arm in found["arms"]] == [0.005, 0.002]
    (said,) = found["conclusions"]
    assert said["lines"]["an answer costs"] == "$0.005000 before, $0.002000 after (60 % less)"
    assert "$0.005000" in demo("runs", "compare", *PAIR).out


def test_only_where_answers_are_read_one_may_be_missing(demo: Gp) -> None:
    change("UPDATE verdicts SET extracted = NULL")
    found = document(demo, *PAIR)
    assert [arm["no_answer_read"] for arm in found["arms"]] == [1, 1]  # `math` reads them
    words = (*EVAL[:3], "--verify", "contains", "--model", "sim", "--json", "--exp-id")
    one, other = (demo(*words, name).document["run"] for name in ("one", "other"))
    found = document(demo, one, other)
    assert 0 < found["arms"][0]["score"]["mean"] < 1
    assert [arm["no_answer_read"] for arm in found["arms"]] == [None, None]


def test_practice_costs_nothing_where_no_library_is_played(demo: Gp) -> None:
    change("UPDATE call_sums SET cost_micro = 1000000, priced = 1 WHERE stage = 'merge'")
    found = document(demo, *PAIR)
    assert found["practice_cost_usd"] > 0
    lines = found["conclusions"][0]["lines"]
    assert lines["the practice cost"] == f"${found['practice_cost_usd']:.2f}"
    merges = round(found["practice_cost_usd"])
    change("UPDATE call_sums SET cost_micro = 1000 WHERE stage = 'merge'")
    lines = document(demo, *PAIR)["conclusions"][0]["lines"]
    assert lines["the practice cost"] == f"$0.00{merges}000"
    found = document(demo, "demo", "demo/eval")
    assert found["practice_cost_usd"] is None
    assert "the practice cost" not in found["conclusions"][0]["lines"]


def test_pass_at_k_has_its_interval(demo: Gp) -> None:
    for command in (("runs", "show", "demo/eval"), ("eval", "-c", "practice.yaml")):
        low, high = re.findall(r"@2 \d\.\d+ \((\d\.\d+) to (\d\.\d+)\)", demo(*command).out)[0]
        score = demo("runs", "show", "demo/eval", "--json").document["scores"]["demo/eval"]
        assert [f"{x:.3f}" for x in score["pass_at_ci95"]["2"]] == [low, high]
    assert score["pass_hat_ci95"]["2"][0] < score["pass_hat"]["2"]


def test_arms_that_share_a_little_of_their_time_say_so(demo: Gp) -> None:
    times = {"demo/eval": ("09:00", "10:00"), "demo": ("09:40", "10:40")}
    for run, ends in times.items():
        name = document(demo, *PAIR)["arms"][1]["run"] if run == "demo" else run
        for which, at in zip(("min", "max"), ends, strict=True):
            change(
                f"""UPDATE rollouts SET finished_at = '2026-01-01T{at}:00.000' WHERE rollout_id IN
                     (SELECT {which}(rollout_id) FROM rollouts JOIN branches b USING (branch_id)
                       WHERE b.run_id = '{name}')"""
            )
        change(
            f"""UPDATE rollouts SET finished_at = '2026-01-01T{ends[1]}:00.000'
                 WHERE finished_at > '2026-01-02' AND branch_id IN
                  (SELECT branch_id FROM branches WHERE run_id = '{name}')"""
        )
    (contrast,) = document(demo, *PAIR)["contrasts"]
    said = "they were played with less than half of their time in common, "
    assert contrast["notes"][0].startswith(said)
