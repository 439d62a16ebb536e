"""Runs of `group_policy: adaptive`, which was removed: they are read, and not gone on with."""

import gzip
import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.advice import commands_in
from tests.cli.conftest import Gp

STORED = Path(__file__).parents[1] / "store" / "schemas" / "adaptive.db.gz"
"""Made by the code that had it: `toy` is complete, `open` paused in the middle of step 1."""
CONFIG = """
exp_id: EXP
practice: {epochs: 2, batch_size: 4, grpo_n: 4, seed: 5, group_policy: adaptive}
data: {practice_dataset_name: train}
evaluation:
  verify: math
  data: {dataset: train}
  agent:
    model: {model_provider: {model: sim}}
    agent: {name: solver, instructions: "Solve it. Put the answer in \\\\boxed{}."}
"""
REMOVED = "was removed, since it missed its target: each step waited twice"
FIXED = ("--set", "practice.group_policy=fixed")


@pytest.fixture
def stored(gp: Gp, tmp_path: Path) -> Gp:
    """`gp` beside the stored runs, and a config for each."""
    (tmp_path / "grpo-practice.db").write_bytes(gzip.decompress(STORED.read_bytes()))
    for name in ("toy", "open"):
        (tmp_path / f"{name}.yaml").write_text(CONFIG.replace("EXP", name))
    return gp


def query(sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect("grpo-practice.db")) as db:
        return db.execute(sql).fetchall()


def next_of(text: str) -> list[str]:
    """The words after `next: grpo-practice`."""
    line = next(x for x in text.splitlines() if x.startswith("next: "))
    return shlex.split(line)[2:]


def test_the_stored_runs_have_what_the_policy_wrote(stored: Gp) -> None:
    assert query("SELECT branch_id, going_on FROM steps WHERE step = 1 ORDER BY 1") == [
        (1, "[1, 2, 3]"),
        (2, "[1, 2, 3]"),
    ]
    assert query("SELECT wave, count(*) FROM rollouts GROUP BY 1") == [(0, 48), (1, 30)]


def test_rewards_are_shown_as_they_were_stored(stored: Gp) -> None:
    shown = stored("runs", "show", "toy")
    assert shown.code == 0
    assert "played    group_policy adaptive" in shown.out
    assert "mean reward: of the first 2 rollouts of each group" in shown.out
    steps = stored("runs", "show", "toy", "--json").document["steps"]
    means = [step["stats"]["mean_reward"] for step in steps]
    assert means == [0.625, 0.375, 0.625, 0.375]
    every = query("SELECT avg(reward) FROM v_rollouts WHERE run_id = 'toy' GROUP BY step")
    assert all(mean != of_all for mean, (of_all,) in zip(means, every, strict=True))


@pytest.mark.parametrize("run", ["toy", "open"])
def test_every_page_of_them_is_there_and_what_it_says_to_do_next_can_be_done(
    stored: Gp, run: str
) -> None:
    shown = stored("runs", "show", run)
    following = next_of(shown.out)
    assert following == ["experiences", "list", "--run", run]
    listed = stored(*following)
    assert (shown.code, listed.code) == (0, 0)
    assert "E1" in listed.out
    assert stored(*next_of(listed.out)).code == 0
    assert stored("experiences", "show", "E1", "--run", run).code == 0
    assert stored("experiences", "list", "--run", run, "--quarantined").code == 0
    assert stored(*next_of(stored("runs", "list").out)).code == 0


def test_a_run_that_has_closed_nothing_goes_on_with_another_policy(stored: Gp) -> None:
    with closing(sqlite3.connect("grpo-practice.db")) as db, db:
        db.execute(
            """UPDATE steps SET status = 'open', stats = NULL, library_out = NULL, closed_at = NULL
                WHERE branch_id = 2 AND step = 0"""
        )
    Path("c.yaml").write_text(Path("open.yaml").read_text())  # as the stored command names it
    following = next_of(stored("runs", "show", "open").out)
    assert following[-2:] == list(FIXED)
    cap = following.index("--max-requests")
    assert stored(*following[:cap], *following[cap + 2 :]).code == 0
    assert query("SELECT count(*) FROM rollouts WHERE wave = 1 AND branch_id > 2") == [(0,)]


def test_what_was_learnt_is_exported_and_evaluated(stored: Gp) -> None:
    exported = stored("export-agent", "--run", "toy")
    assert "## Experience from practice" in exported.out
    Path("agent.yaml").write_text(exported.out)
    scored = stored("eval", "--agent", "agent.yaml", "--json")
    assert scored.code == 0
    assert scored.document["rollouts"]["scored"] == 8


def test_the_database_is_whole(stored: Gp) -> None:
    checked = stored("db", "check")
    assert (checked.code, "closed steps of practice (5): ok" in checked.out) == (0, True)


@pytest.mark.parametrize(
    "words",
    [
        ("practice",),
        ("practice", "--dry-run"),
        ("practice", "--pilot", "1"),
        ("practice", "--restart-step", "1"),
        ("practice", "--restart-step", "0", "--again"),
        ("practice", "--config", "open.yaml"),
        ("practice", "--config", "toy.yaml"),
        ("practice", "--config", "toy.yaml", "--epochs", "3"),
        ("practice", "--config", "toy.yaml", "--exp-id", "new"),
        ("practice", "--config", "toy.yaml", *FIXED, "--set", "practice.group_policy=adaptive"),
        ("config", "show", "--config", "toy.yaml"),
        ("config", "show"),
    ],
)
def test_going_on_is_refused_and_changes_nothing(stored: Gp, words: tuple[str, ...]) -> None:
    before = query("SELECT count(*), max(call_id) FROM calls")
    refused = stored(*words, "--json") if words[0] == "practice" else stored(*words)
    assert refused.code == 2
    assert REMOVED in refused.err
    assert refused.err.count("\n") == 1
    assert query("SELECT count(*), max(call_id) FROM calls") == before
    assert query("SELECT count(*) FROM branches") == [(2,)]


@pytest.mark.parametrize("policy", ["skip_uniform", "fixed"])
def test_the_way_out_it_names_is_one(stored: Gp, policy: str) -> None:
    refused = stored("practice").err
    assert "add --set practice.group_policy=skip_uniform (or fixed) --exp-id NAME," in refused
    assert "--from RUN to keep" in refused
    flags = ("--set", f"practice.group_policy={policy}", "--exp-id", "other")
    done = stored("practice", *flags, "--from", "open", "--json")
    assert done.code == 0
    assert {step["status"] for step in done.document["steps"]} == {"closed"}
    assert json.dumps(done.document).count("first 2 rollouts") == 0
    assert query("SELECT count(*) FROM libraries WHERE run_id = 'other' AND n > 0")[0][0]
    assert query("SELECT status FROM steps WHERE branch_id = 2 AND step = 1") == [("open",)]


def test_another_policy_for_the_same_run_is_refused_with_what_can_be_done(stored: Gp) -> None:
    refused = stored("practice", *FIXED)
    assert refused.code == 2
    assert "practice.group_policy" in refused.err
    assert "undo the change" not in refused.err
    assert "add --restart-step 1 to keep the steps before it and go on from there" in refused.err
    kept = query("SELECT count(*) FROM rollouts WHERE branch_id = 2")
    done = stored("practice", *FIXED, "--restart-step", "1", "--json")
    assert done.code == 0
    steps = done.document["steps"]
    over = [step["mean_reward_over"] for step in steps]
    assert over == ["the first 2 rollouts of each group", *["all rollouts"] * 3]
    assert [step["rollouts"]["scored"] for step in steps] == [14, 16, 16, 16]
    assert query("SELECT count(*) FROM rollouts WHERE branch_id = 2") == kept
    assert stored("db", "check").code == 0


def test_its_rollouts_are_not_scored_again_since_that_would_be_no_score(stored: Gp) -> None:
    refused = stored("eval", "--rejudge", "--verify", "contains", "--run", "toy")
    assert refused.code == 2
    assert "toy has adaptive groups" in refused.err
    export, evaluate = commands_in(refused.err)
    assert export == "grpo-practice export-agent --run toy -o agent.yaml"
    for command in (export, evaluate):
        assert stored(*command.split()[1:]).code == 0
