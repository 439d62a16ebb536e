"""`runs diagnose`: what stands in the way of a run, from what is stored."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.reports import run_diagnosis
from grpo_practice.sim.questions import questions
from tests.cli.conftest import Gp
from tests.cli.test_run_commands import Shell, shell
from tests.contract.advice import next_words
from tests.contract.project import change

__all__ = ["shell"]

KINDS = (
    "equal answers",
    "all right",
    "all wrong",
    "shrunk",
    "truncated",
    "empty",
    "overlap",
    "duplicates",
    "churn",
)


def findings(gp: Gp, run: str) -> dict[str, dict[str, Any]]:
    """What stands out, by kind."""
    found = gp("runs", "diagnose", run, "--json")
    assert found.code == 0, found.err
    return {f["about"]: f for f in found.document["findings"] if f["severity"] != "ok"}


def looked_at(gp: Gp, run: str, kind: str) -> dict[str, Any]:
    document = gp("runs", "diagnose", run, "--json").document
    (found,) = [of for of in document["findings"] if of["about"] == kind]
    return dict(found)


def query(sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect("grpo-practice.db")) as db:
        return db.execute(sql).fetchall()


def test_each_finding_has_its_number_and_what_to_do(demo: Gp) -> None:
    change("UPDATE groups SET mean_reward = 1, status = 'uniform', informative = 0 WHERE slot < 5")
    ran = demo("runs", "diagnose", "demo")
    assert ran.code == 0
    alike = query(
        "SELECT sum(mean_reward = 1), sum(mean_reward = 0), count(*) FROM groups WHERE scored > 0"
    )[0]
    right, wrong = (looked_at(demo, "demo", f"all {kind}") for kind in ("right", "wrong"))
    assert (right["n"], wrong["n"], right["of"]) == alike
    assert f"{right['n']} of {right['of']} groups were not informative: all of" in ran.out
    assert demo(*next_words(ran.out)).code == 0
    assert {*KINDS} <= {
        of["about"] for of in demo("runs", "diagnose", "demo", "--json").document["findings"]
    }
    for of in findings(demo, "demo").values():
        words = of["command"].split()[1:]
        assert demo(*words).code == 0


def test_an_endpoint_that_does_not_sample_is_suspected(demo: Gp) -> None:
    assert looked_at(demo, "demo", "equal answers")["severity"] == "ok"
    change("UPDATE rollout_bodies SET response = 'the same to everybody'")
    found = findings(demo, "demo")["equal answers"]
    (groups,) = query("SELECT count(*) FROM groups WHERE scored > 0")[0]
    assert (found["n"], found["of"]) == (groups, groups)
    assert "the endpoint may ignore the requested temperature" in found["hint"]
    assert "answers are identical" in demo("runs", "diagnose", "demo").out.splitlines()[1]


def test_nothing_stands_out_where_nothing_does(demo: Gp) -> None:
    ran = demo("runs", "diagnose", "demo/eval")
    assert "no problems found; checked: truncated, empty" in ran.out
    assert demo(*next_words(ran.out)).code == 0


@pytest.mark.parametrize(
    ("reward", "kind", "advice"),
    [
        (1.0, "all right", "practise on harder questions"),
        (0.0, "all wrong", "raise practice.grpo_n"),
    ],
)
def test_a_run_whose_groups_end_alike_says_so(
    demo: Gp, reward: float, kind: str, advice: str
) -> None:
    change(
        f"UPDATE groups SET status = 'uniform', informative = 0, mean_reward = {reward}"
        " WHERE slot < 10"
    )
    found = findings(demo, "demo")
    assert [k for k in found if k.startswith("all ")] == [kind]
    assert advice in found[kind]["hint"]


def test_a_wrong_answer_is_unread_only_under_a_function_that_reads_answers(demo: Gp) -> None:
    ran = demo("eval", "--run", "demo/eval", "--rejudge", "--verify", "contains", "--json")
    assert ran.document["score"]["correct"] < ran.document["score"]["scored"]
    assert "no answer read" not in findings(demo, ran.document["run"])
    change("UPDATE verdicts SET extracted = NULL WHERE rollout_id % 3 = 0")
    assert "no answer read" in findings(demo, "demo/eval")


def test_answers_that_are_cut_or_cannot_be_read_stand_out(demo: Gp) -> None:
    change("UPDATE rollouts SET outcome = 'truncated' WHERE attempt = 0 AND slot < 5")
    change("UPDATE verdicts SET extracted = NULL WHERE rollout_id % 3 = 0")
    change("UPDATE rollouts SET tokens_out = tokens_out * 3 WHERE step = 3")
    found = findings(demo, "demo")
    assert {"truncated", "no answer read", "longer"} <= found.keys()
    assert "max_tokens" in found["truncated"]["hint"]
    cut = query(
        "SELECT count(*) FROM rollouts JOIN branches USING (branch_id)"
        " WHERE run_id = 'demo' AND outcome = 'truncated'"
    )[0][0]
    assert found["truncated"]["n"] == cut
    assert found["longer"]["n"] > 2 * found["longer"]["of"]


def test_groups_that_lost_attempts_stand_out_with_what_failed(demo: Gp) -> None:
    change("UPDATE groups SET scored = planned - 1 WHERE slot < 4")
    found = findings(demo, "demo")["shrunk"]
    assert (found["n"], found["of"]) == (16, 48)
    assert demo(*found["command"].split()[1:]).code == 0


def test_rollouts_that_another_function_scores_otherwise_stand_out(demo: Gp) -> None:
    words = ("--rejudge", "--verify", "regex", "--set", "verify={name: regex, pattern: '7'}")
    assert demo("eval", *words, "--run", "demo/eval").code == 0
    found = findings(demo, "demo/eval")["scored otherwise"]
    differ = query(
        """SELECT count(*) FROM verdicts a JOIN verdicts b USING (rollout_id)
            WHERE a.verifier_id < b.verifier_id AND a.reward <> b.reward"""
    )[0][0]
    assert (found["n"], found["of"]) == (differ, 80)
    assert demo(*found["command"].split()[1:]).code == 0


def upload(gp: Gp, name: str, rows: Sequence[tuple[str, str]]) -> None:
    lines = [json.dumps({"question": q, "answer": a}) for q, a in rows]
    Path(f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    assert gp("data", "upload", f"{name}.jsonl", "--name", name, "--replace").code == 0


def test_questions_that_stand_in_two_parts_or_twice_stand_out(shell: Shell) -> None:
    samples = questions(16, 0)
    rows = [(s.question, str(s.answer)) for s in samples]
    upload(shell.gp, "train", [*rows[:12], *((q.upper(), a) for q, a in rows[:2])])
    upload(shell.gp, "test", rows[8:])
    shell.type("practice", "--config", "math.yaml", "--epochs", "1")
    shell.type("eval", "--run", "toy")
    shell.type("eval", "--run", "toy", "--dataset", "train", "--exp-id", "another")
    found = findings(shell.gp, "toy")
    assert (found["overlap"]["n"], found["overlap"]["of"]) == (4, 8)
    assert (found["duplicates"]["n"], found["duplicates"]["of"]) == (2, 14)
    assert "overlap" in findings(shell.gp, "toy/eval")


def test_prompts_compared_on_practice_questions_are_no_test(shell: Shell) -> None:
    rows = [(s.question, str(s.answer)) for s in questions(16, 0)]
    upload(shell.gp, "train", rows[:8])
    upload(shell.gp, "test", rows[8:])
    shell.type("practice", "--config", "math.yaml", "--epochs", "1")
    shell.type("eval", "--run", "toy")
    for name in ("brief", "careful"):
        text = f"agent: {{name: {name}, instructions: Be {name}.}}"
        Path(f"{name}.yaml").write_text(text, "utf-8")
    arms = ("--arms", "brief.yaml,careful.yaml")
    shell.type("eval", "--config", "math.yaml", "--dataset", "train", *arms)
    assert "overlap" not in findings(shell.gp, "toy")


def test_a_library_that_is_rewritten_all_the_time_stands_out(
    demo: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, churn = (looked_at(demo, "demo", kind) for kind in ("size", "churn"))
    sizes = query(
        "SELECT n FROM v_steps s JOIN libraries l ON l.library_id = s.library_out"
        " WHERE s.run_id = 'demo' ORDER BY s.step"
    )
    assert f"after each step: {', '.join(str(n) for (n,) in sizes)}" in size["sentence"]
    assert churn["of"] >= size["n"]
    assert churn["of"] - churn["n"] == size["n"]
    monkeypatch.setattr(run_diagnosis, "HALF", -1.0)
    monkeypatch.setattr(run_diagnosis, "LARGE", 3)
    assert {"size", "churn"} <= findings(demo, "demo").keys()


def test_a_practice_that_learnt_nothing_leads_here(shell: Shell) -> None:
    shell.type("practice", "--config", "math.yaml", "--set", "practice.grpo_n=2")
    change("UPDATE groups SET status = 'uniform', informative = 0, mean_reward = 1")
    ran = shell.gp("runs", "diagnose", "toy")
    assert "24 of 24 groups were not informative: all of their attempts are right" in ran.out


@pytest.mark.parametrize(
    ("run", "said"), [("nope", "there is no run"), ("dmeo", "did you mean demo?")]
)
def test_a_run_that_is_not_there_is_refused(demo: Gp, run: str, said: str) -> None:
    ran = demo("runs", "diagnose", run)
    assert (ran.code, said in ran.err) == (2, True), ran.err
