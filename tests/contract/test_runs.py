"""Runs as a person looks at them, on a finished demo."""

import re
import sqlite3
from contextlib import closing

import pytest

from tests.contract.command import Gp


def test_runs_are_listed_with_what_is_simulated(demo: Gp) -> None:
    lines = demo("runs", "list").out.splitlines()
    first = " ".join(lines[1].split())
    assert re.match(
        r"demo/eval/L\w{8} 0\.\d{3} \d\d-\d\d \d\d:\d\d L4 done eval test sim demo_agent"
        r" 5 of 5$",
        first,
    )
    assert "  all are simulated, so they say nothing about a real model" in lines
    assert lines[-1].startswith("next: grpo-practice runs show demo/eval/L")
    document = demo("runs", "list", "--json").document
    assert document["schema"] == "grpo-practice.runs/1"
    found = {run["name"]: run for run in document["runs"]}
    assert found["demo"]["kind"] == "practice"
    assert (found["demo"]["steps"], found["demo"]["steps_closed"]) == (4, 4)
    assert {run["parent_run"] for name, run in found.items() if "/L" in name} == {"demo"}


def test_a_run_shows_steps_scores_and_costs_by_stage(demo: Gp) -> None:
    lines = demo("runs", "show", "demo").out.splitlines()
    text = "\n".join(lines)
    assert lines[0] == "demo (simulated)"
    assert "240 ok" in text
    steps = [line.split() for line in lines if line.strip().endswith("closed")]
    assert [row[0] for row in steps if row[0].isdigit()] == ["0", "1", "2", "3"]
    evaluations = [line.split()[0] for line in lines if line.startswith("demo/eval")]
    assert evaluations[0] == "demo/eval"
    assert len(evaluations) == 3
    stages = [line.split()[0] for line in lines if " sim " in line]
    assert stages == ["play", "compare", "propose", "merge"]  # all fits: no summaries
    assert lines[-1] == "next: grpo-practice experiences list --run demo"


def test_the_share_that_was_cached_is_shown_by_stage_where_it_is_known(demo: Gp) -> None:
    assert "cached" not in demo("runs", "show", "demo").out
    costs = demo("runs", "show", "demo", "--json").document["costs"]
    assert {cost["tokens_cached"] for cost in costs} == {None}
    with closing(sqlite3.connect("grpo-practice.db")) as db, db:
        db.execute("UPDATE calls SET tokens_cached = tokens_in / 4 WHERE stage = 'play'")
    lines = [line.split() for line in demo("runs", "show", "demo").out.splitlines()]
    shares = {line[0]: line[4:6] for line in lines if line[1:2] == ["sim"]}
    assert shares["play"] in (["24", "%"], ["25", "%"])
    assert shares["compare"][0] == "unknown"


def test_the_document_of_a_run_adds_up(demo: Gp) -> None:
    document = demo("runs", "show", "demo", "--json").document
    assert document["schema"] == "grpo-practice.run/1"
    assert document["outcomes"] == {"ok": 240}
    assert [step["stats"]["planned"] for step in document["steps"]] == [60] * 4
    assert {cost["stage"]: cost["calls"] for cost in document["costs"]}["play"] == 240
    assert [b["cause"] for b in document["branches"]] == ["start"]
    assert all(0 < s["mean"] < 1 for s in document["scores"].values())
    assert [*document["tested"]] == [*document["scores"]]
    assert {one["dataset"] for one in document["tested"].values()} == {"test"}
    assert [one["arm"] for one in document["tested"].values()] == [None, "L3", "L4"]


def test_an_evaluation_shows_its_own_score_only(demo: Gp) -> None:
    document = demo("runs", "show", "demo/eval", "--json").document
    assert list(document["scores"]) == ["demo/eval"]


def test_an_unknown_run_is_an_error_that_names_those_there_are(demo: Gp) -> None:
    ran = demo("runs", "show", "nope")
    assert ran.code == 2
    assert re.search(
        r"hint: runs: demo, demo/eval, demo/eval/L\w+, demo/eval/L\w+$", ran.err.strip()
    )


def test_part_of_a_name_finds_the_runs_that_contain_it(demo: Gp) -> None:
    assert demo("eval", "--run", "demo/eval", "--exp-id", "other").code == 0
    ran = demo("runs", "show", "er/")
    assert "hint: runs with 'er/' in their names: other/eval" in ran.err


def test_a_library_is_not_a_run(demo: Gp) -> None:
    ran = demo("runs", "show", "L2")
    assert (ran.code, "error: L2 is a library, not a run" in ran.err) == (2, True)
    *_, command = ran.err.strip().partition("hint: grpo-practice ")
    assert "experiences in L2" in demo(*command.split()).out
    assert "there is no run 'L99'" in demo("runs", "show", "L99").err


def test_each_evaluation_of_a_run_names_its_questions_and_its_arm(demo: Gp) -> None:
    assert demo("eval", "--run", "demo", "--arms", "none,full").code == 0
    shown = demo("runs", "show", "demo").out
    assert re.search(r"evaluation +score +dataset +arm ", shown)
    assert re.search(r"demo/eval +0\.\d+ +\S+ +none ", shown)
    assert re.search(r"demo/eval/L\w+ +0\.\d+ +\S+ +full ", shown)


def test_deleting_a_run_takes_its_evaluations_along(demo: Gp) -> None:
    assert demo("runs", "delete", "demo").code == 2
    ran = demo("runs", "delete", "demo", "-y")
    assert ran.out.startswith("deleted 3 runs: demo, demo/eval/L")
    left = demo("runs", "list", "--json").document["runs"]
    assert [run["name"] for run in left] == ["demo/eval"]


def test_several_runs_are_deleted_by_names_and_globs(demo: Gp) -> None:
    assert demo("eval", "--run", "demo/eval", "--exp-id", "other").code == 0
    ran = demo("runs", "delete", "demo/*", "nobody*", "-y")
    assert (ran.code, "there is no run 'nobody*'" in ran.err) == (2, True)
    ran = demo("runs", "delete", "demo/*")
    assert "Delete demo/eval, demo/eval/L" in ran.err
    assert "and all their paid results?" in ran.err
    ran = demo("runs", "delete", "demo/*", "other/eval", "-y")
    assert ran.out.startswith("deleted 4 runs: demo/eval, demo/eval/L"), ran.err
    assert [run["name"] for run in demo("runs", "list", "--json").document["runs"]] == ["demo"]


@pytest.mark.parametrize("words", [("runs", "list"), ("experiences", "list"), ("data", "list")])
def test_looking_makes_no_database(gp: Gp, words: tuple[str, ...]) -> None:
    ran = gp(*words)
    assert ran.code == 2
    assert "there is no database grpo-practice.db yet" in ran.err
    assert gp("data", "list").code == 2


def change(sql: str) -> None:
    with closing(sqlite3.connect("grpo-practice.db")) as db, db:
        db.execute(sql)


def test_sums_without_the_tokens_of_some_calls_are_marked(demo: Gp) -> None:
    change("UPDATE calls SET tokens_in = NULL WHERE call_id % 9 = 0 AND stage = 'play'")
    lines = demo("runs", "show", "demo").out.splitlines()
    marked = {line.split()[0]: line.count("at least") for line in lines if " sim " in line}
    assert marked["play"] >= 2
    assert marked["merge"] == 0


def test_a_tool_has_no_cache_that_could_be_unknown(demo: Gp) -> None:
    change("UPDATE calls SET tokens_cached = 1 WHERE stage = 'play'")
    change(
        """UPDATE calls SET stage = 'tool', name = 't', tries = 0, tokens_in = 0, tokens_out = 0
            WHERE call_id = 1"""
    )
    lines = [line.split() for line in demo("runs", "show", "demo/eval").out.splitlines()]
    assert next(line for line in lines if line[:2] == ["tool", "t"])[2:6] == ["1", "0", "-", "0"]


def test_a_run_that_is_not_complete_says_what_goes_on_with_it(demo: Gp) -> None:
    change("UPDATE invocations SET command = 'grpo-practice eval --limit 2 --pilot=1 -c x.yaml'")
    change("UPDATE runs SET status = 'paused' WHERE run_id = 'demo/eval'")
    said = demo("runs", "show", "demo/eval").out
    assert said.splitlines()[-1] == "next: grpo-practice rollouts list demo/eval --failed"
    assert said.count("rollouts list") == 1
    change("UPDATE steps SET status = 'open' WHERE step = 4")
    shown = demo("runs", "show", "demo/eval").out.splitlines()
    assert shown[-1] == "next: grpo-practice eval -c x.yaml"


def test_a_run_in_which_all_failed_is_not_offered_for_scoring_again(demo: Gp) -> None:
    change("UPDATE invocations SET command = 'grpo-practice eval -c x.yaml'")
    change("UPDATE rollouts SET outcome = 'error', reason = 'agent', error = 'odd'")
    change("DELETE FROM verdicts")
    shown = demo("runs", "show", "demo/eval").out.splitlines()
    assert shown[-1] == "next: grpo-practice eval -c x.yaml"


def test_a_run_that_learnt_nothing_is_not_asked_for_its_experiences(demo: Gp) -> None:
    change("UPDATE steps SET stats = json_set(stats, '$.experiences', 0)")
    shown = demo("runs", "show", "demo").out.splitlines()
    assert shown[-1] == "next: grpo-practice rollouts show demo"


def test_a_run_that_is_gone_on_with_is_not_said_to_be_configured_as_itself(demo: Gp) -> None:
    change("DELETE FROM invocations WHERE run_id NOT IN ('demo/eval')")
    said = demo("eval", "--dry-run").err
    assert "note: demo/eval: resumed (agent " in said
    assert "with the config of" not in said


def test_what_attempts_were_asked_is_printed_once(demo: Gp) -> None:
    words = ("--dataset", "test", "--limit", "2", "--model", "sim", "--exp-id", "shown")
    ran = demo("eval", *words, "-k", "3", "--verify", "contains", "--show")
    assert ran.out.count("[assistant]") == 6
    assert ran.out.count("[user]") == 2
    again = demo("eval", *words, "-k", "1", "--verify", "math", "--show", "--exp-id", "other")
    assert again.out.count("[user]") == 2


def test_a_practice_run_is_gone_on_with_by_its_name(demo: Gp) -> None:
    later = ("--config", "practice.yaml", "--exp-id", "later", "--set", "practice.grpo_n=3")
    assert demo("practice", *later, "--pilot", "1").code == 0
    ran = demo("practice", "--exp-id", "demo")
    assert "note: demo: resumed (agent " in ran.err
    assert "all already done" in ran.err


@pytest.mark.long
def test_evaluations_that_practice_began_name_their_arms(demo: Gp) -> None:
    shorter = ("--set", "practice.epochs=1", "--set", "evaluation.pass_k=3")  # so with a baseline
    other = ("--config", "practice.yaml", "--exp-id", "other", *shorter)
    assert demo("practice", *other).code == 0
    runs = {run["name"]: run for run in demo("runs", "list", "--json").document["runs"]}
    library = demo("experiences", "list", "--run", "other", "--json").document["library"]
    arms = {name: run["arm"] for name, run in runs.items() if name.startswith("other/eval")}
    assert arms.pop("other/eval") == "none"
    assert [*arms.values()] == [library]


def test_a_batch_under_way_is_named_in_lists_and_before_its_run_is_deleted(demo: Gp) -> None:
    with closing(sqlite3.connect("grpo-practice.db")) as db, db:
        db.execute(
            "INSERT INTO batches (model, url, remote_id, created_at) VALUES"
            " ('m', 'http://h/v1', 'b', strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now'))"
        )
        db.execute(
            "INSERT INTO batch_calls SELECT 1, branch_id, 0, 0, 0, 'play', randomblob(16), 0"
            " FROM branches WHERE run_id = 'demo'"
        )
    assert " 1 play since " in demo("runs", "list").out
    shown = demo("runs", "show", "demo")
    assert "1 request (play) since " in shown.out
    assert demo("runs", "show", "demo", "--json").document["awaits"]["requests"] == 1
    ran = demo("runs", "delete", "demo", "-y")
    assert "demo: in a batch that is billed, and will not be read: 1 request (play)" in ran.err
