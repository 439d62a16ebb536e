"""`eval --arms`: evaluations that are played together, and how they compare."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.advice import next_words
from tests.contract.command import Gp
from tests.contract.project import DB

ALL = ("eval", "--arms", "none,full,aa,direct,filler")


def query(sql: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect("grpo-practice.db")) as db:
        return db.execute(sql, values).fetchall()


def asked() -> int:
    """Requests so far."""
    return int(query("SELECT count(*) FROM calls")[0][0])


def arms(gp: Gp, *words: str) -> dict[str, Any]:
    """The runs that arms are, by arm."""
    ran = gp(*words, "--json")
    assert ran.code == 0, ran.err
    return {arm["named"]: arm["run"] for arm in ran.document["arms"]}


def results(document: dict[str, Any]) -> list[Any]:
    """What is found, without the times at which it was played."""
    kept = ("baseline", "arm", "verdict", "difference", "questions")
    return [[contrast[key] for key in kept] for contrast in document["contrasts"]]


def test_arms_end_in_how_they_compare(demo: Gp) -> None:
    before = asked()
    ran = demo(*ALL)
    assert ran.code == 0, ran.err
    titles = [line for line in ran.out.splitlines() if line.startswith("full compared with ")]
    assert titles == [f"full compared with {arm}" for arm in ("none", "aa", "direct", "filler")]
    assert "already complete, and not played again: demo/eval, demo/ev" in ran.err
    assert asked() - before == 3 * 80 + 1
    assert demo(*next_words(ran.out)).code == 0
    worked_on = query("SELECT count(*) FROM invocations WHERE run_id = 'demo'")
    again = demo(*ALL, "--json")
    assert asked() - before == 3 * 80 + 1
    assert query("SELECT count(*) FROM invocations WHERE run_id = 'demo'") == worked_on
    found = again.document
    assert found["schema"] == "grpo-practice.compare/1"
    named = {arm["named"]: arm["run"] for arm in found["arms"]}
    assert list(named) == ["none", "full", "aa", "direct", "filler"]
    assert named["none"] == "demo/eval"
    assert named["aa"] == f"{named['full']}/seed=1"
    by_run = {c["baseline"]: c for c in found["contrasts"]}
    assert {c["arm"] for c in found["contrasts"]} == {named["full"]}
    assert by_run[named["none"]]["verdict"] == by_run[named["filler"]]["verdict"] == "better"
    assert by_run[named["aa"]]["verdict"] == "none found"


def test_each_arm_is_the_evaluation_that_it_would_be_alone(demo: Gp) -> None:
    assert demo("runs", "delete", "demo/eval", "--yes").code == 0
    runs = arms(demo, "eval", "--arms", "none,full")
    before = asked()
    assert demo("eval", "--run", "demo", "--json").document["run"] == runs["none"]
    ran = demo("practice", "--config", "practice.yaml", "--json").document
    assert [ran[when]["run"] for when in ("before", "after")] == [runs["none"], runs["full"]]
    assert asked() == before


@pytest.mark.long
def test_a_question_is_played_by_all_arms_before_many_others_are(demo: Gp) -> None:
    runs = arms(demo, *ALL, "--again", "--set", "concurrency=4")
    rows = query(
        """SELECT r.step, r.sample_id, b.run_id FROM rollouts r JOIN branches b USING (branch_id)
            JOIN runs USING (run_id) WHERE b.branch_id = runs.head_branch AND run_id IN
              (SELECT value FROM json_each(?)) ORDER BY rollout_id""",
        json.dumps(list(runs.values())),
    )
    assert len(rows) == 5 * 80
    places = dict[tuple[int, int], list[int]]()
    firsts = dict[tuple[int, int], str]()
    for place, (step, sample, run) in enumerate(rows):
        places.setdefault((step, sample), []).append(place)
        firsts.setdefault((step, sample), run)
    # Five arms of two attempts, and as many of others between them as are under way at once.
    assert max(of[-1] - of[0] for of in places.values()) < 5 * 2 + 2 * 4
    assert len(set(firsts.values())) == 5, "the arms take turns at being first"
    in_order = [sample for step, sample in places if step == 0]
    assert in_order != sorted(in_order), "questions come in an order of their own"


@pytest.mark.long
def test_nothing_is_said_of_time_where_arms_were_played_together(demo: Gp) -> None:
    apart = "they were played"
    assert apart in demo("eval", "--arms", "none,full,filler").out
    before = asked()
    ran = demo("eval", "--arms", "none,full,filler", "--again")
    assert asked() - before == 3 * 80
    assert apart not in ran.out
    assert "not played again" not in ran.err


@pytest.mark.long
def test_a_pause_changes_nothing_but_when_it_is_asked(demo: Gp) -> None:
    start = asked()
    capped = ("--max-requests", "40000", "--set", "concurrency=2")
    whole = demo(*ALL, "--again", *capped, "--json").document
    assert asked() - start == 5 * 80 + 1
    spent = asked()
    first = demo(*ALL, "--again", "--max-requests", str(40))
    assert first.code == 6, first.err
    assert asked() == spent, "what the arms cost before counts"
    so_far = re.search(r"(\d+) requests spent so far", first.err)
    assert so_far
    third = demo(*ALL, "--max-requests", str(int(so_far[1]) + 90), "--json")
    assert third.code == 6, third.out
    left = demo(*ALL, "--dry-run", "--json").document["total"]["calls"]
    done = demo(*ALL, "--json")
    assert asked() - spent == 5 * 80
    # Some of what was answered is not scored yet: it is counted, and not asked again.
    assert 5 * 80 - 90 <= left[0] == left[1] < 5 * 80 - 60
    assert results(done.document) == results(whole)


@pytest.mark.long
def test_what_a_dry_run_says_is_asked_then(demo: Gp) -> None:
    before, tables = asked(), query("SELECT count(*) FROM libraries")
    ahead = demo(*ALL, "--dry-run", "--json").document
    assert (asked(), query("SELECT count(*) FROM libraries")) == (before, tables)
    assert {line["part"]: line["calls"] for line in ahead["stages"] if line["stage"] == "play"} == {
        arm: [80, 80] for arm in ("aa", "direct", "filler")
    }
    assert ahead["total"]["calls"] == [241, 241]
    assert demo(*ALL).code == 0
    assert asked() - before == 241
    assert demo(*ALL, "--dry-run", "--json").document["total"]["calls"] == [0, 0]


@pytest.mark.long
def test_a_pilot_asks_a_little_in_each_arm(demo: Gp) -> None:
    before = asked()
    ran = demo(*ALL, "--pilot", "2", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["piloted"]["rollouts"] == 3 * 2 * 2
    assert ran.document["total"]["calls"] == [3 * 76, 3 * 76]
    assert demo(*ALL).code == 0
    assert asked() - before == 241


@pytest.mark.long_after(1)
@pytest.mark.parametrize("evaluation", [("--arms", "none,full"), ("--restart-step", "0")])
def test_what_goes_on_after_a_pilot_of_a_new_beginning_uses_it(
    demo: Gp, evaluation: tuple[str, str]
) -> None:
    before, words = asked(), ("eval", *evaluation, "--again", "--pilot", "2")
    piloted = demo(*words)
    assert piloted.code == 0, piloted.err
    assert next_words(piloted.out) == ["eval", *evaluation]
    assert demo(*next_words(piloted.out)).code == 0
    assert asked() - before == (160 if "--arms" in evaluation else 80)


@pytest.mark.long
def test_what_the_teacher_writes_directly_leaves_the_practice_run_as_it_is(demo: Gp) -> None:
    before = demo("runs", "show", "demo", "--json").document
    assert demo("eval", "--arms", "full,direct").code == 0
    after = demo("runs", "show", "demo", "--json").document
    assert after["run"]["status"] == before["run"]["status"] == "done"
    assert after["steps"] == before["steps"]
    last = demo("runs", "show", "demo").out.splitlines()[-1]
    assert last.startswith("next: ")
    assert "--arms" not in last
    assert query("SELECT stage, count(*) FROM calls WHERE stage = 'direct'") == [("direct", 1)]
    library = query("SELECT tip_library FROM branches WHERE run_id = 'demo'")
    assert f"L{library[0][0]}" == before["steps"][-1]["library"]
    assert demo("db", "check").code == 0
    ran = demo("runs", "delete", "demo", "--yes")
    assert ran.code == 2
    assert demo(*next_words(ran.err, "to delete all of them: "), "--yes").code == 0
    assert "demo" not in [run["name"] for run in demo("runs", "list", "--json").document["runs"]]
    assert demo("db", "check").code == 0


def test_an_arm_with_more_attempts_keeps_them(demo: Gp) -> None:
    assert demo("eval", "--run", "demo", "-k", "4").code == 0
    found = demo("eval", "--arms", "none,full", "--json").document
    assert [arm["k"] for arm in found["arms"]] == [4, 2]


@pytest.mark.long
def test_arms_are_agents_files_and_libraries_too(demo: Gp) -> None:
    first = query("SELECT library_out FROM v_steps WHERE run_id = 'demo' AND step = 0")[0][0]
    text = Path("agent.yaml").read_text("utf-8")
    Path("by_hand.yaml").write_text(text.replace("[E1]", "[E1] Attention:"), "utf-8")
    runs = arms(demo, "eval", "--arms", f"L{first},by_hand.yaml,none")
    assert list(runs) == [f"L{first}", "by_hand.yaml", "none"]
    assert runs["by_hand.yaml"] == "demo/eval/by_hand"
    document = demo("eval", "--arms", f"L{first},by_hand.yaml,none", "--json").document
    assert [c["arm"] for c in document["contrasts"]] == [runs["by_hand.yaml"]] * 2
    step = arms(demo, "eval", "--arms", "none,full", "--step", "0")
    assert step["full"] == runs[f"L{first}"]


@pytest.mark.long
def test_arms_are_of_the_experiment_whatever_was_done_last(demo: Gp) -> None:
    text = Path("agent.yaml").read_text("utf-8")
    Path("by_hand.yaml").write_text(text.replace("[E1]", "[E1] Attention:"), "utf-8")
    first = arms(demo, "eval", "--arms", "none,filler")
    again = arms(demo, "eval", "--arms", "by_hand.yaml,none")
    assert again == {"by_hand.yaml": "demo/eval/by_hand", "none": first["none"]}
    last = demo("runs", "show", "demo", "--json").document["steps"][-1]["library"]
    assert arms(demo, "eval", "--arms", f"none,{last}")["none"] == "demo/eval"


def test_arms_need_no_practice_where_none_is_meant(gp: Gp) -> None:
    Path("q.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n', "utf-8")
    for name in ("a", "b"):
        agent = f"type: simple\nagent: {{name: {name}, instructions: 'Be {name}.'}}\n"
        Path(f"{name}.yaml").write_text(agent, "utf-8")
    words = ("--model", "sim", "--dataset", "q.jsonl", "--verify", "exact", "--json")
    found = gp("eval", "--arms", "none,a.yaml,b.yaml", *words)
    assert found.code == 0, found.err
    assert [arm["named"] for arm in found.document["arms"]] == ["none", "a.yaml", "b.yaml"]
    assert {c["verdict"] for c in found.document["contrasts"]} == {"too few"}
    again = gp("eval", "--arms", "a.yaml,none", "--json")
    runs = [arm["run"] for arm in again.document["arms"]]
    assert runs == [
        "q/eval/model=sim/verify=exact/a",
        *(arm["run"] for arm in found.document["arms"] if arm["named"] == "none"),
    ]


@pytest.mark.long
def test_the_arm_none_is_the_experiment_s_agent_whatever_ran_last(demo: Gp) -> None:
    assert demo("eval", "--arms", "none,filler").code == 0
    first = arms(demo, "eval", "--arms", "none,agent.yaml")
    assert first == {"none": "demo/eval", "agent.yaml": "demo/eval/agent"}
    before = asked()
    assert arms(demo, "eval", "--arms", "none,agent.yaml") == first
    assert asked() == before
    Path("another.yaml").write_text(Path("agent.yaml").read_text("utf-8"), "utf-8")
    runs = arms(demo, "eval", "--arms", "another.yaml,none")
    assert runs == {"another.yaml": "demo/eval/another", "none": "demo/eval"}


def test_an_evaluation_after_arms_is_that_of_their_experiment(demo: Gp) -> None:
    assert demo("eval", "--arms", "none,filler").code == 0
    ran = demo("eval", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["run"] == "demo/eval"


def test_what_is_said_of_an_agent_s_file_is_said_of_an_arm(demo: Gp) -> None:
    text = Path("agent.yaml").read_text("utf-8")
    url = "model: sim\n    base_url: http://127.0.0.1:9/v1"
    Path("far.yaml").write_text(text.replace("model: sim", url), "utf-8")
    Path(".env").write_text("UTU_LLM_API_KEY=nothing-secret\n", "utf-8")
    Path(".env").chmod(0o600)
    ran = demo("eval", "--run", "demo", "--arms", "none,far.yaml", "--dry-run")
    assert ran.code == 0, ran.err
    assert ran.err.count("UTU_LLM_API_KEY is not sent to http://127.0.0.1:9/v1") == 1


REFUSED = [
    ("none", "a comparison needs two arms or more"),
    ("none,ful", "hint: did you mean full?"),
    ("none,none", "two arms have the name none"),
    ("a/x.yaml,b/x.yaml", "two arms have the name x"),
    ("none,L99", "there is no library L99"),
    ("none,nowhere.yaml", "nowhere.yaml"),
    ("none,", "a comparison needs two arms or more"),
    ("full,aa --agent agent.yaml", "leave out --agent, --library and --rejudge"),
    ("none,full --rejudge --verify exact", "leave out --agent, --library and --rejudge"),
    ("none,full --show", "--show cannot be used with --arms"),
    ("none,full --run demo --show", "--show cannot be used with --arms"),
    ("none,full --run nope", "nope"),
    ("none,full --run demo/eval", "demo/eval is an evaluation, so it does not produce a library"),
    ("none,full --step 9", "demo has not closed step 9"),
    ("none,full --dataset nope", "nope"),
]


def test_what_cannot_be_compared_is_refused_and_leaves_nothing(demo: Gp) -> None:
    counts = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM libraries)"
    last = demo("runs", "show", "demo", "--json").document["steps"][-1]["library"]
    again = (f"none,full,{last}", f"full and {last} are the same evaluation")
    before = query(counts)
    for words, said in [*REFUSED, again]:
        ran = demo("eval", "--arms", *words.split())
        assert ran.code == (4 if "dataset" in words else 2), ran.err
        assert said in ran.err, words
        assert query(counts) == before, words
    ran = demo("eval", "--arms", "")
    assert "a comparison needs two arms or more" in ran.err
    ran = demo("eval", "--step", "1")
    assert "hint: grpo-practice eval --arms none,full --step 1" in ran.err


def size(library: Any) -> int:
    """Return the length of a library's lines."""
    return sum(len(f"[{e.id}] {e.text}\n".encode()) for e in library.experiences)


@pytest.mark.long
def test_libraries_that_teach_nothing_are_as_many_and_as_long(demo: Gp) -> None:
    runs = arms(demo, *ALL)
    played = "SELECT library_id FROM branches WHERE run_id = ?"
    refs = {arm: f"L{query(played, run)[0][0]}" for arm, run in runs.items() if arm != "none"}
    found = {arm: Workspace(DB).experiences(ref).library for arm, ref in refs.items()}
    full, direct, filler = (found[arm] for arm in ("full", "direct", "filler"))
    assert len(direct) == len(filler) == len(full)
    assert abs(size(filler) / size(full) - 1) < 0.05
    assert abs(size(direct) / size(full) - 1) < 0.1
    texts = [e.text for e in filler.experiences]
    assert not {*texts} & {e.text for e in full.experiences}
    listed = demo("experiences", "list", f"--run={refs['filler']}", "--json").document
    assert [e["text"] for e in listed["experiences"]] == texts
    for arm in ("direct", "filler"):  # a written library and its own number are one arm
        ran = demo("eval", "--arms", f"none,{arm},{refs[arm]}")
        said = f"are the same evaluation, {runs[arm]}"
        assert (ran.code, said in ran.err) == (2, True), ran.err
