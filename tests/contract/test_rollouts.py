"""Looking into runs: rollouts in a list and with all that was said, and what runs are about."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.advice import next_words
from tests.contract.command import Gp
from tests.contract.project import DB, change


def after(ran_out: str, label: str) -> list[str]:
    """Return the words of the command on the line that has this label."""
    return next_words(ran_out, label)


def last_library(gp: Gp) -> str:
    """Return the evaluation of the demo's last library."""
    name: str = gp("runs", "list", "--json").document["runs"][0]["name"]
    return name


def test_the_list_of_runs_says_dataset_model_and_score(demo: Gp) -> None:
    lines = [" ".join(line.split()) for line in demo("runs", "list").out.splitlines()[:5]]
    head, _, _, second, first = lines
    assert head == "run score begun (UTC) arm status kind dataset model agent steps"
    score = demo("runs", "show", "demo/eval", "--json").document["scores"]["demo/eval"]["mean"]
    assert first.startswith(f"demo/eval {score:.3f} ")
    assert first.endswith(" done eval test sim demo_agent 5 of 5")
    assert second.endswith(" done practice practice sim demo_agent 4 of 4")
    runs = demo("runs", "list", "--json").document["runs"]
    assert runs[3]["score"] == pytest.approx(score)
    assert (runs[3]["dataset"], runs[3]["model"], runs[2]["score"]) == ("test", "sim", None)


def test_a_score_in_the_list_is_that_of_the_run_also_where_rollouts_are_missing(demo: Gp) -> None:
    change("UPDATE steps SET sums = NULL WHERE step = 2")
    change(
        "DELETE FROM verdicts WHERE rollout_id IN (SELECT rollout_id FROM rollouts WHERE step = 2"
        " AND slot IN (1, 2) AND (attempt = 0 OR slot = 1))"
    )
    score = demo("runs", "show", "demo/eval", "--json").document["scores"]["demo/eval"]
    assert score["questions_scored"] == 39
    assert Workspace(DB).runs().scores["demo/eval"] == pytest.approx(score["mean"])
    change("UPDATE steps SET status = 'open' WHERE step = 4")
    assert Workspace(DB).runs().scores.get("demo/eval") is None


def test_an_evaluation_shows_what_it_asked_and_how_often(demo: Gp) -> None:
    text = demo("runs", "show", "demo/eval").out
    facts = {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line}
    assert facts["dataset"] == "test, 40 questions"
    assert (facts["model"], facts["verify"]) == ("sim", "math")
    assert facts["k"] == "2 rollouts a question"
    assert facts["pass"].startswith("@1 0.")
    assert "@2 0." in facts["pass"]
    document = demo("runs", "show", "demo/eval", "--json").document
    told = [document[key] for key in ("model", "verify", "k")]
    assert [document["dataset"]["name"], *told] == ["test", "sim", "math", 2]
    limited = demo(
        *("eval", "--dataset", "test", "--verify", "math", "--model", "sim"),
        *("--exp-id", "few", "--limit", "3", "--json"),
    ).document["run"]
    assert "test, 3 of 40 questions" in demo("runs", "show", limited).out


@pytest.mark.parametrize(("run", "label"), [("demo", "conversations: "), ("demo/eval", "next: ")])
def test_a_run_says_where_to_read_what_was_said(demo: Gp, run: str, label: str) -> None:
    words = after(demo("runs", "show", run).out, label)
    assert words[:3] == ["rollouts", "list", run]
    assert demo(*words).code == 0


def test_failed_rollouts_are_listed_and_no_others(demo: Gp) -> None:
    document = demo("rollouts", "list", "demo/eval", "--failed", "--json").document
    assert document["all"] == {"rollouts": 80, "groups": 40}
    assert document["matching"]["rollouts"] == len(document["rollouts"]) > 0
    assert all(row["reward"] < 1 for row in document["rollouts"])
    score = demo("runs", "show", "demo/eval", "--json").document["scores"]["demo/eval"]
    assert len(document["rollouts"]) == round(80 * (1 - score["mean"]))
    change("DELETE FROM verdicts WHERE rollout_id = 1")
    change("UPDATE rollouts SET outcome = 'error', error = 'odd\x1b[31m' WHERE rollout_id = 1")
    ran = demo("rollouts", "list", "demo/eval", "--failed", "--limit", "2")
    assert "\x1b" not in ran.out
    assert f"2 of {len(document['rollouts']) + 1} rollouts\nmore: " in ran.out
    every = demo(*after(ran.out, "more: ")).out
    assert len(every.splitlines()) == len(document["rollouts"]) + 4


def test_what_failed_is_counted_alike_by_the_evaluation_and_by_the_list(gp: Gp) -> None:
    rows = [json.dumps({"question": f"What is {n} + 1?", "answer": n + 1}) for n in range(4)]
    Path("d.jsonl").write_text("\n".join(rows))
    bad = "def solve(sample, **kwargs):\n    if len(sample.response) > 1: raise ValueError('no')\n"
    Path("bad.py").write_text(f"{bad}    return 1.0\n")  # for a gold alone
    assert gp("data", "upload", "d.jsonl", "--name", "d").code == 0
    ran = gp("eval", "--dataset", "d", "--verify", "bad.py:solve", "--model", "sim")
    failed = re.search(r"(\d+) of the 4 rollouts of (\S+) failed", ran.err)
    assert failed, ran.err
    listed = gp("rollouts", "list", failed[2], "--failed").out
    there = listed.count(" error ")
    assert int(failed[1]) == there > 0
    assert f"{there} of the {there} rollouts of {failed[2]}, {there} without a reward" in listed


def test_a_question_has_its_number_in_the_dataset(demo: Gp) -> None:
    asked = [sample.question for sample in Workspace(DB).datasets.show("practice", 24).rows]
    rows = demo("rollouts", "list", "demo", "--limit", "500", "--json").document["rollouts"]
    assert len(rows) == 240
    assert all(asked[row["number"] - 1].startswith(row["question"]) for row in rows)
    one = demo("rollouts", "list", "demo", "--question", "14", "--json").document["rollouts"]
    assert {row["number"] for row in one} == {14}
    assert len({row["step"] for row in one}) == 2  # two epochs
    ran = demo("rollouts", "show", "demo/eval", "-q", "41")
    assert (ran.code, ran.err) == (
        2,
        "error: test has no question 41\nhint: its questions are 1 to 40\n",
    )
    assert demo("rollouts", "list", "demo", "-q", "9" * 20).code == 2


def test_a_question_that_was_not_played_is_answered_with_those_that_were(demo: Gp) -> None:
    rows = demo("rollouts", "list", "demo:0", "--limit", "500", "--json").document["rollouts"]
    played = sorted({row["number"] for row in rows})
    (missing, *_) = {*range(1, 25)} - {*played}
    for command in ("list", "show"):
        ran = demo("rollouts", command, "demo:0", "--question", str(missing))
        assert ran.code == 0
        assert f"it has rollouts of question {', '.join(map(str, played[:12]))}" in ran.out


def means(rows: list[dict[str, Any]]) -> dict[int, list[float]]:
    """Return number of a question → mean reward of each of its plays."""
    plays = dict[tuple[int, int], list[float]]()
    for row in rows:
        plays.setdefault((row["number"], row["step"]), []).append(row["reward"])
    found = dict[int, list[float]]()
    for (number, _), rewards in sorted(plays.items()):
        found.setdefault(number, []).append(sum(rewards) / len(rewards))
    return found


def rows_of(gp: Gp, run: str, *more: str) -> list[dict[str, Any]]:
    words = ("rollouts", "list", run, "--limit", "1000", "--json", *more)
    rows: list[dict[str, Any]] = gp(*words).document["rollouts"]
    return rows


def test_questions_that_flipped_against_the_agent_without_experiences(demo: Gp) -> None:
    name = last_library(demo)
    # One question flips the other way.
    change(
        f"""UPDATE verdicts SET reward = (SELECT run_id = 'demo/eval' FROM v_rollouts r
             WHERE r.rollout_id = verdicts.rollout_id) WHERE rollout_id IN (SELECT rollout_id
              FROM v_rollouts WHERE run_id IN ('demo/eval', '{name}') AND step = 0 AND slot = 1)"""
    )
    before, now = means(rows_of(demo, "demo/eval")), means(rows_of(demo, name))
    flipped = {n for n in now if (before[n][-1] >= 0.5) != (now[n][-1] >= 0.5)}
    rows = rows_of(demo, name, "--flipped")
    flips = demo("rollouts", "list", name, "--flipped", "--json").document["flips"]
    assert {str(row["sample_id"]) for row in rows} == {*flips}
    assert {row["number"] for row in rows} == flipped
    assert {flip["now"] >= 0.5 for flip in flips.values()} == {True, False}
    assert rows_of(demo, name, "--against", "demo/eval") == rows
    shown = demo("rollouts", "list", name, "--flipped").out
    assert "compared with: demo/eval" in shown
    assert "wrong → right" in shown
    assert "right → wrong" in shown
    right = sum(flip["now"] >= 0.5 for flip in flips.values())
    turned = f"{right} from wrong to right, {len(flips) - right} from right to wrong"
    assert f"{len(flips)} questions flipped: {turned}; their rollouts:" in shown
    one = demo("rollouts", "list", name, "--flipped", "--question", str(min(flipped))).out
    assert "1 question flipped" in one
    itself = demo("rollouts", "list", "demo/eval", "--flipped")
    assert itself.code == 2
    assert "--against RUN" in itself.err
    assert demo("rollouts", "list", "demo/eval", "--against", name).code == 0


def test_questions_that_flipped_within_a_practice_run(demo: Gp) -> None:
    plays = means(rows_of(demo, "demo"))
    flipped = {n for n, m in plays.items() if (m[0] >= 0.5) != (m[-1] >= 0.5)}
    assert flipped
    assert {row["number"] for row in rows_of(demo, "demo", "--flipped")} == flipped
    first = rows_of(demo, "demo:0", "--flipped")
    assert {row["step"] for row in first} == {0}


def test_a_rescored_evaluation_is_compared_with_the_one_it_scores(demo: Gp) -> None:
    scored = last_library(demo)
    score = Path("score.py").absolute()
    score.write_text(
        "def alone(sample):\n    return float(sample.response == str(sample.correct_answer))\n"
    )
    rejudge = ("eval", "--rejudge", "--verify", f"{score}:alone", "--run", scored, "--json")
    name = demo(*rejudge).document["run"]
    document = demo("rollouts", "list", name, "--flipped", "--json").document
    assert document["compared"] == scored != "demo/eval"
    assert document["rollouts"]
    assert all(flip["was"] >= 0.5 > flip["now"] for flip in document["flips"].values())


def test_runs_with_no_question_in_common_are_not_compared(demo: Gp) -> None:
    ran = demo("rollouts", "list", "demo", "--against", "demo/eval")
    assert ran.code == 2
    assert "no scored question in common" in ran.err


LOOKS = [
    ("rollouts", "list", "demo"),
    ("rollouts", "list", "demo:1", "--failed"),
    ("rollouts", "list", "demo/eval", "--question", "3"),
    ("rollouts", "show", "demo/eval"),
    ("rollouts", "show", "demo", "--question", "14"),
    ("rollouts", "show", "demo:0", "--failed", "--limit", "1"),
    ("rollouts", "list", "demo/eval", "-q", "1", "--failed"),
    ("rollouts", "show", "demo/eval", "-q", "1", "--failed"),
    ("eval", "--run", "demo/eval", "--show"),
]


@pytest.mark.long
def test_what_to_type_next_works(demo: Gp) -> None:
    for db, looks in (((), LOOKS), (("--db", "other name.db"), LOOKS[:2])):
        if db:
            Path(DB).rename("other name.db")
        for look in looks:
            words = look
            for _ in range(3):
                ran = demo(*words, *(word for word in db if word not in words))
                assert ran.code == 0, (words, ran.err)
                if "more: " in ran.out:
                    every = demo(*after(ran.out, "more: "))
                    assert every.code == 0
                    assert "more: " not in every.out
                if "next: " not in ran.out:  # everything is shown
                    break
                words = tuple(next_words(ran.out))
                assert ("other name.db" in words) is bool(db), look


def test_a_rollout_is_shown_with_prompt_turns_verdict_and_critique(demo: Gp) -> None:
    ran = demo("rollouts", "show", "demo/eval", "--question", "3")
    lines = ran.out.splitlines()
    assert lines[:3] == ["question 3, step 0", "attempt 1 of 2", "[system]"]
    for said in ("[user]", "[assistant]", "[answered]  reward ", "right answer: ", "expected "):
        assert said in ran.out
    assert "1 of 1 question shown" in ran.out
    documents = demo("rollouts", "show", "demo/eval", "-q", "3", "--json").document
    assert documents["schema"] == "grpo-practice.transcripts/1"
    assert [one["attempt"] for one in documents["rollouts"]] == [0, 1]
    assert documents == json.loads(
        json.dumps(Workspace(DB).transcripts("demo/eval", question=3).document())
    )


def test_only_the_attempts_that_failed_are_shown(demo: Gp) -> None:
    rows = rows_of(demo, "demo/eval", "--failed")
    shown = demo("rollouts", "show", "demo/eval", "--failed", "--limit", "100", "--json").document
    places = [(one["step"], one["slot"], one["attempt"]) for one in shown["rollouts"]]
    assert places == [(row["step"], row["slot"], row["attempt"]) for row in rows]


AGENT = """
def solve(question, system, context):
    return "long \\x1b[31m" + "x" * 3000 + " the answer is 2"
"""


def test_what_a_function_returned_is_shown_and_cut_unless_all_is_asked_for(gp: Gp) -> None:
    Path("own.py").write_text(AGENT, "utf-8")
    Path("c.yaml").write_text(
        "exp_id: own\ndata: {dataset: d}\nverify: contains\nagent:\n  type: python\n"
        "  function: own.py:solve\n  model: {model_provider: {model: sim}}\n"
        "  agent: {name: own, instructions: Be brief.}\n",
        "utf-8",
    )
    Workspace(DB).datasets.upload("d", [("1+1?", "2"), ("2+1?", "3")])
    assert gp("eval", "--config", "c.yaml").code == 0
    ran = gp("rollouts", "show", "own/eval")
    assert "[system prompt of the agent]\nBe brief." in ran.out
    assert ran.out.count("Be brief.") == 1
    assert ran.out.count("[question]") == 2  # the function asked nobody
    assert "[question]\n2+1?\n" in ran.out
    assert "[answer that was scored]\nlong \\x1b[31mxxx" in ran.out
    assert "more characters]" in ran.out
    assert "the answer is 2" not in ran.out
    full = gp("rollouts", "show", "own/eval", "--full").out
    assert full.count("the answer is 2") == 2
    assert "\x1b" not in ran.out + full


def test_an_evaluation_shows_the_run_that_is_named(demo: Gp) -> None:
    before = demo("runs", "list", "--json").document
    name = last_library(demo)
    ran = demo("eval", "--run", name, "--show", "--limit", "1")
    assert ran.code == 0
    question = demo("rollouts", "show", name, "--limit", "1", "--json").document["rollouts"][0]
    assert question["system"] in ran.out
    assert len(question["system"]) > 200  # the experiences: not the run that comes first
    assert demo("runs", "list", "--json").document == before
    alone = demo("eval", "--run", name)
    assert alone.code == 2
    assert demo(*next_words(alone.err, "hint: ")).code == 0
    both = demo("eval", "--run", name, "--show", "--model", "sim")
    assert both.code == 2
    assert "leave out config" in both.err


def test_showing_says_how_many_of_how_many(demo: Gp) -> None:
    words = ("--config", "practice.yaml")
    ran = demo("eval", *words, "--show")
    assert (
        "3 of 40 questions shown\nmore: grpo-practice rollouts show demo/eval --limit 40" in ran.out
    )
    every = demo(*after(ran.out, "more: ")).out
    assert "40 of 40 questions shown" in every
    assert every.count("[user]") == 40


def test_a_run_that_has_no_rollouts_says_so(demo: Gp) -> None:
    change("UPDATE runs SET kind = 'recorded' WHERE run_id = 'demo'")
    ran = demo("rollouts", "list", "demo")
    assert ran.code == 2
    assert "demo is a recorded run" in ran.err
    for words in (("demo/eval:7",), ("demo/eval:last",), ("nope",)):
        assert demo("rollouts", "show", *words).code == 2
