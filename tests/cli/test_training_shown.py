"""A training run in what commands print; nothing of it needs torch."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.cli.conftest import Gp
from tests.train.stored import RUN, training_database


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gp: Gp) -> Path:
    path = training_database(tmp_path)
    monkeypatch.setenv("GRPO_PRACTICE_DB", str(path))
    return path


def test_runs_show_has_what_each_update_did(gp: Gp, database: Path) -> None:
    out = gp("runs", "show", RUN).out
    assert "an adapter of rank 16 by dapo" in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("1  ")][:1]
    cells = "1 0.467 2 50% 0.25 0.002 1.50 1.5 12.5% 1.0e-05 224 2.0 s"
    assert row == cells.split()
    sha = Workspace(database).run(RUN).document()["trained"]["checkpoints"][0]["sha256"][:8]
    assert f"1           17 bytes  {sha}  t.db.train/toy.train/b1/step-000001" in out


REFUSED = [
    (f"runs compare {RUN} toy/eval", f"{RUN} is a training run", "--arms base,trained"),
    (f"experiences list --run {RUN}", "it does not produce a library", f"export-agent --run {RUN}"),
    (
        f"experiences approve H1 --run {RUN}",
        "it does not produce a library",
        f"export-agent --run {RUN}",
    ),
    (
        f"experiences effect --run {RUN}",
        "it does not produce a library",
        f"export-agent --run {RUN}",
    ),
    (f"experiences diff {RUN} {RUN}", "it does not produce a library", f"export-agent --run {RUN}"),
]


@pytest.mark.parametrize(("command", "error", "hint"), REFUSED)
def test_what_only_practice_has_is_refused(
    gp: Gp, database: Path, command: str, error: str, hint: str
) -> None:
    ran = gp(*command.split())
    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err
    assert hint in ran.err.partition("hint: ")[2]


def test_a_check_names_checkpoints_that_are_gone(gp: Gp, database: Path) -> None:
    shutil.rmtree(f"{database}.train")
    ran = gp("db", "check")
    assert ran.code == 0
    assert (
        "checkpoints (2): 2 notes\n  the checkpoint of step 1 of toy/train is missing: " in ran.out
    )


def diagnosis(gp: Gp) -> dict[str, dict[str, Any]]:
    document = gp("runs", "diagnose", RUN, "--json").document
    return {finding["about"]: finding for finding in document["findings"]}


def test_what_stands_in_the_way_is_said_in_words_of_training(gp: Gp, database: Path) -> None:
    found = diagnosis(gp)
    counted = {kind: (of["n"], of["of"]) for kind, of in found.items() if of["of"] is not None}
    assert counted == {
        "all right": (3, 12),
        "all wrong": (4, 12),
        "shrunk": (1, 12),
        "truncated": (1, 47),
        "empty": (0, 47),
        "refused": (0, 47),
        "content filter": (0, 47),
        "context overflow": (0, 47),
        "no answer read": (0, 47),
        "longer": (4, 4),
        "duplicates": (0, 4),
    }
    assert [of["about"] for of in found.values() if of["severity"] != "ok"] == [
        "all wrong",
        "not reproducible",
    ]
    advice = " ".join(of["hint"] or "" for of in found.values())
    assert "train.group_size" in advice
    assert "train.max_output_tokens" in advice
    assert "practi" not in advice
    assert "experience" not in advice
    ran = gp("runs", "diagnose", RUN)
    assert "4 of 12 groups were not informative: all of their attempts are wrong" in ran.out


def test_attempts_that_become_alike_stand_out(gp: Gp, database: Path) -> None:
    with closing(sqlite3.connect(database)) as db, db:
        for inner in range(1, 10):
            db.execute(
                """INSERT INTO updates SELECT branch_id, step, ?, loss, learning_rate, grad_norm,
                     ?, kl, clip_low, clip_high, uniform_share, tokens, seconds
                     FROM updates WHERE branch_id = 2 AND step = 2 AND inner = 0""",
                (inner, 1 - inner / 10),
            )
    found = diagnosis(gp)["entropy"]
    assert (found["n"], found["of"], found["severity"]) == (0.1, 2.0, "warning")


def test_questions_that_are_trained_and_tested_on_stand_out(gp: Gp, database: Path) -> None:
    words = ("--dataset", "train", "--verify", "exact", "--model", "sim", "--exp-id", "toy")
    asked = gp("eval", *words)
    assert asked.code == 0, asked.err
    assert (diagnosis(gp)["overlap"]["n"], diagnosis(gp)["overlap"]["severity"]) == (4, "warning")
    out = gp("runs", "diagnose", RUN).out
    assert "4 of 4 test questions are also practice questions" in out
    # A score of another model on the same questions is none of the weights.
    assert gp("runs", "show", RUN, "--json").document["scores"] == {}


def test_a_database_of_somebody_else_is_shown_as_it_is(gp: Gp, database: Path) -> None:
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("UPDATE updates SET loss = 9e999, entropy = -9e999, kl = 9e999, seconds = 9e999")
        db.execute("UPDATE checkpoints SET path = ?", ("a\x1b[2J\nb",))
    for ran in (gp("runs", "show", RUN), gp("db", "check"), gp("runs", "diagnose", RUN)):
        assert ran.code == 0, ran.err
        assert "\x1b" not in ran.out
    (first, *_) = gp("runs", "show", RUN, "--json").document["trained"]["updates"]
    assert (first["loss"], first["entropy"], first["seconds"]) == (None, None, None)


def test_runs_are_listed_by_their_kind(gp: Gp, database: Path) -> None:
    words = ("--dataset", "train", "--verify", "exact", "--model", "sim", "--exp-id", "toy")
    assert gp("eval", *words).code == 0
    evaluated = "toy/eval/model=sim/verify=exact"
    everything = gp("runs", "list", "--json").document["runs"]
    assert [run["name"] for run in everything] == [evaluated, RUN]
    for kind, name in (("train", RUN), ("eval", evaluated)):
        found = gp("runs", "list", "--kind", kind, "--json").document["runs"]
        assert [run["name"] for run in found] == [name]
    ran = gp("runs", "list", "--kind", "practice")
    assert (ran.code, "none of the 2 runs matches\n" in ran.out) == (0, True)
    assert gp("runs", "list", "--kind", "x").code == 2
