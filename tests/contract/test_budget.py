"""Caps, dry runs and pilots, as a person uses them."""

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.command import BOUND, Gp, commands
from tests.contract.project import Project


@pytest.fixture
def toy(gp: Gp, tmp_path: Path) -> Gp:
    Project(tmp_path)
    return lambda *words: gp(*words, "--db", "p.db")


def test_a_cap_pauses_with_exit_6_and_a_higher_one_goes_on(toy: Gp) -> None:
    paused = toy("practice", "-c", "c.yaml", "--max-requests", "20", "--json")
    assert paused.code == 6
    assert paused.document["kind"] == "paused"
    assert paused.document["exit"] == 6
    message = paused.document["message"]
    assert message == "paused by --max-requests 20: 20 requests spent so far"
    assert "--max-requests 40" in paused.document["hint"]
    again = toy("practice", "-c", "c.yaml", "--max-requests", "20", "--json")
    assert (again.code, again.document) == (6, paused.document)
    listed = toy("runs", "list", "--json").document["runs"]
    assert [run["status"] for run in listed] == ["paused"]
    done = toy("practice", "-c", "c.yaml", "--max-requests", "1000", "--json")
    assert (done.code, done.document["usage"]["cost_usd"]) == (0, 0.0)
    capped = toy("eval", "-c", "c.yaml", "--max-tokens", "100")
    assert (capped.code, "paused by --max-tokens 100" in capped.err) == (6, True)


@pytest.mark.long
def test_a_repeated_restart_that_pauses_goes_on_and_does_not_begin_a_third(
    toy: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["practice", "-c", "c.yaml", "--restart-step", "1"]
    toy(*words[:3])
    toy(*words)
    words += ["--again", "--max-requests", "1"]
    monkeypatch.setattr("sys.argv", ["grpo-practice", *words])
    paused = toy(*words)
    assert paused.code == 6
    hinted = shlex.split(paused.err.partition("to continue: ")[2])[1:]
    monkeypatch.setattr("sys.argv", ["grpo-practice", *hinted])
    toy(*hinted)
    branches = toy("runs", "show", "toy", "--json").document["branches"]
    assert [branch["from_step"] for branch in branches] == [0, 1, 1]


def test_money_is_capped_in_the_demo_s_world_too_and_costs_nothing_there(toy: Gp) -> None:
    done = toy("practice", "-c", "c.yaml", "--max-cost", "0", "--json")
    assert (done.code, done.document["usage"]["cost_usd"], done.document["unpriced"]) == (
        0,
        0.0,
        {},
    )
    assert done.document["simulated"] is True
    priced = ("--set", "evaluation.prices={sim: {input: 1000, output: 1000}}")
    paused = toy("eval", "-c", "c.yaml", "--max-cost", "0.5", *priced)
    assert paused.code == 6
    assert "--max-cost 0.5" in paused.err


def test_money_without_a_price_is_refused_and_the_way_out_is_named(toy: Gp) -> None:
    url = ("--set", "evaluation.agent.model.model_provider.base_url=http://127.0.0.1:9/v1")
    refused = toy("practice", "-c", "c.yaml", "--max-cost", "1", *url)
    assert refused.code == 2
    assert "evaluation.prices" in refused.err
    assert toy("runs", "list", "--json").document["runs"] == []
    assert toy("practice", "-c", "c.yaml", "--max-cost", "nan").code == 2


def test_a_dry_run_says_what_is_left_and_leaves_no_trace(toy: Gp, tmp_path: Path) -> None:
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    said = toy("practice", "-c", "c.yaml", "--dry-run", "--max-requests", "10")
    assert said.code == 0
    assert "assumption" in said.out
    assert "will be reached" in said.out
    document = toy("practice", "-c", "c.yaml", "--dry-run", "--json").document
    assert document["schema"] == "grpo-practice.forecast/1"
    assert document["total"]["calls"][0] >= 72
    assert toy("eval", "-c", "c.yaml", "--dry-run", "--json").document["total"]["calls"] == [12, 12]
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


FORECASTS = (
    ("practice", "-c", "c.yaml"),
    ("practice", "-c", "c.yaml", "--restart-step", "0", "--set", "practice.grpo_n=4"),
    ("practice", "-c", "c.yaml", "--set", "data.practice_dataset_name=new.csv", "--exp-id", "x"),
    ("eval", "-c", "c.yaml", "-k", "2"),
    ("eval", "-c", "c.yaml", "--dataset", "new.csv", "--exp-id", "x"),
    ("eval", "-c", "c.yaml", "--rejudge", "--verify", "exact"),
)
"""Forecasts of runs that go on, are begun anew or are new, on stored questions or on a file's."""


@pytest.fixture
def played(toy: Gp, tmp_path: Path) -> Gp:
    """Return `toy` in a project with two runs, and with a file of questions that is new."""
    assert toy("eval", "-c", "c.yaml", "--limit", "5").code == 0
    assert toy("practice", "-c", "c.yaml", "--max-requests", "20").code == 6
    (tmp_path / "new.csv").write_text("question,answer\n1+1?,2\n2+2?,4\n3+3?,6\n4+4?,8\n")
    return toy


@pytest.mark.long
def test_a_dry_run_waits_for_no_command_that_writes(played: Gp, tmp_path: Path) -> None:
    told = [played(*words, "--dry-run", "--json").document for words in FORECASTS]
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    with closing(sqlite3.connect(tmp_path / "p.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for words, document in zip(FORECASTS, told, strict=True):
            assert played(*words, "--dry-run", "--json").document == document, words
        other.execute("ROLLBACK")
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.long
def test_a_dry_run_reads_a_database_that_nobody_may_write(played: Gp, tmp_path: Path) -> None:
    told = [played(*words, "--dry-run", "--json").document for words in FORECASTS]
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    for path in (*tmp_path.iterdir(), tmp_path):
        path.chmod(path.stat().st_mode & 0o555)
    try:
        words = [" ".join((*words, "--dry-run --json --db p.db")) for words in FORECASTS]
        for (code, out, err), document in zip(commands(words, tmp_path, *BOUND), told, strict=True):
            assert (code, json.loads(out)) == (0, document), err
    finally:
        tmp_path.chmod(0o700)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.long
def test_a_dry_run_of_scoring_again_counts_the_answers_without_a_verdict(played: Gp) -> None:
    again = ("eval", "-c", "c.yaml", "--rejudge", "--verify", "judge", "--json")

    def ahead() -> dict[str, list[int]]:
        stages = played(*again, "--dry-run").document["stages"]
        return {stage["stage"]: stage["calls"] for stage in stages}

    assert played("eval", "-c", "c.yaml").code == 0
    assert ahead() == {"judge": [12, 12]}
    assert played(*again).document["requests"]["new"] == 12
    assert ahead() == {}
    assert played("eval", "-c", "c.yaml", "-k", "2").code == 0
    assert ahead() == {"judge": [12, 12]}
    assert played(*again).document["requests"]["new"] == 12


def test_models_of_a_forecast_are_named_with_what_asks_them(toy: Gp) -> None:
    teacher = (
        "practice.teacher_model={model_provider: {model: sim, base_url: 'http://h.example/v1'}}"
    )
    one = toy("practice", "-c", "c.yaml", "--dry-run", "--set", teacher)
    assert one.code == 0
    other = teacher.replace("model: sim", "model: other")
    two = toy("practice", "-c", "c.yaml", "--dry-run", "--set", other)
    assert "sim: play; other: summarise, compare, propose, merge" in two.out


def test_a_forecast_ends_with_the_command_that_does_it(toy: Gp) -> None:
    forecast = toy("practice", "-c", "c.yaml", "--max-requests", "10", "--dry-run")
    *_, remark, last = forecast.out.splitlines()
    assert remark == "the run will pause before it is finished: raise --max-requests"
    assert last == "next: grpo-practice practice -c c.yaml --max-requests 10 --db p.db"
    piloted = toy("practice", "--pilot", "1", "-c", "c.yaml")
    assert piloted.out.splitlines()[-1] == "next: grpo-practice practice -c c.yaml --db p.db"
    piloted = toy("eval", "-c", "c.yaml", "--pilot=3", "-k", "2")
    assert piloted.out.splitlines()[-1] == "next: grpo-practice eval -c c.yaml -k 2 --db p.db"


def test_where_nobody_knows_what_a_rollout_takes_a_dry_run_ends_with_the_pilot(
    toy: Gp, tmp_path: Path
) -> None:
    text = "def play(question, system, context): return 'x'\n"
    (tmp_path / "mine.py").write_text(text, "utf-8")
    agent = "evaluation.agent"
    words = ["eval", "-c", "c.yaml", "--set", f"{agent}.type=python"]
    words += ["--set", f"{agent}.function=mine.py:play"]
    dry = toy(*words, "--dry-run").out.splitlines()[-1]
    assert dry == f"next: grpo-practice {' '.join(words)} --db p.db --pilot 1"
    piloted = toy(*words, "--pilot", "1").out.splitlines()[-1]
    assert piloted == f"next: grpo-practice {' '.join(words)} --db p.db"


def test_a_dry_run_makes_no_database(gp: Gp, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("question,answer\n1+1?,2\n")
    words = ("eval", "--model", "sim", "--dataset", "d.csv", "--verify", "math", "--dry-run")
    assert gp(*words, "--json").document["total"]["calls"] == [1, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["d.csv"]


def test_a_pilot_plays_and_then_says_what_is_left(toy: Gp) -> None:
    piloted = toy("practice", "-c", "c.yaml", "--pilot", "2", "--json")
    assert piloted.code == 0
    assert (piloted.document["pilot"], piloted.document["stages"][0]["calls"]) == (2, [66, 66])
    assert piloted.document["stages"][0]["history"] == 6
    evaluated = toy("eval", "-c", "c.yaml", "--pilot", "3")
    assert evaluated.code == 0
    assert "this run" in evaluated.out
    assert evaluated.out.startswith("pilot: 3 questions, 3 rollouts, mean reward ")
    done = toy("eval", "-c", "c.yaml", "--json").document
    assert done["requests"]["new"] == 9
    assert toy("practice", "-c", "c.yaml", "--pilot", "2", "--dry-run").code == 2
