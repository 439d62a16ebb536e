"""Runs that move between databases: interruptions, training runs and origins in other runs."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice import Workspace
from grpo_practice.core.errors import GrpoPracticeError
from grpo_practice.core.types import Experience, Library
from grpo_practice.store import Store, transfer
from grpo_practice.store.table_graph import Table
from grpo_practice.store.trained_steps import checkpoint_folder
from tests.store.helpers import planned, plans, spec, upload
from tests.train.stored import training_database


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return training_database(tmp_path / "theirs")


def other(path: Path, name: str = "mine") -> Path:
    """Make a database with a small run of its own."""
    with Store(path) as store:
        data, ids = upload(store, name=name)
        branch = store.begin(
            spec(data, name, {"verify.name": "exact"}, kind="eval"), plan=planned(plans(ids, 1))
        )
        with store.invocation(branch, "grpo-practice practice --config mine.yaml"):
            pass
    return path


COPIED = ["texts", "runs", "branches", "steps", "rollouts", "checkpoints"]


@pytest.mark.parametrize("last", COPIED)
def test_an_import_that_ends_early_writes_nothing(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    mine = other(tmp_path / "mine.db")
    before, copy = dump(mine), transfer._Transfer._copy
    files = {*tmp_path.iterdir()}

    def fails(self: transfer._Transfer, table: Table) -> None:
        copy(self, table)
        if table.name == last:
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(transfer._Transfer, "_copy", fails)
    with pytest.raises(GrpoPracticeError):
        Workspace(mine).import_runs(trained)
    assert dump(mine) == before
    with pytest.raises(GrpoPracticeError):
        Workspace(trained).export_run("t/train", tmp_path / "out.db")
    assert {*tmp_path.iterdir()} == files
    monkeypatch.undo()
    assert Workspace(mine).import_runs(trained).runs


def test_a_training_run_moves_with_its_updates_and_names_no_weights_of_others(
    tmp_path: Path, trained: Path
) -> None:
    (run,) = [row.name for row in Workspace(trained).runs().runs]
    with closing(sqlite3.connect(trained)) as db, db:
        # A stranger's file names the weights of a run here, which deleting it would remove.
        db.execute("UPDATE checkpoints SET path = 'mine.db.train/other/b1/step-000001'")
    mine = other(tmp_path / "mine.db")
    for n in (1, 2, 3):
        weights = tmp_path / f"mine.db.train/other/b{n}/step-000001"
        weights.mkdir(parents=True)
    made = Workspace(mine).import_runs(trained)
    assert made.runs == {run: run}
    with Store(mine, "look") as store:
        paths = [
            row[0] for row in store.read(lambda db: db.execute("SELECT path FROM checkpoints"))
        ]
    folder = run.replace("/", ".")
    assert paths == [
        f"mine.db.train/{folder}/b2/step-000001",
        f"mine.db.train/{folder}/b3/step-000002",
    ]
    shown = Workspace(mine).run(run)
    assert shown.trained is not None
    assert [row.plan.step for row in shown.steps] == [0, 1, 2]
    assert Workspace(mine).check().problems == 0
    Workspace(mine).delete_run(run)
    assert checkpoint_folder(mine, "mine.db.train/other/b1/step-000001")


def test_the_folder_of_weights_is_named_if_a_run_has_some(tmp_path: Path, trained: Path) -> None:
    (run,) = [row.name for row in Workspace(trained).runs().runs]
    written = Workspace(trained).export_run(run, tmp_path / "out.db")
    assert written.left == trained.with_name("t.db.train")
    with Store(tmp_path / "out.db", "look") as store:
        row = store.read(lambda db: db.execute("SELECT path FROM checkpoints").fetchone())
    assert row[0].startswith("out.db.train/")


def test_the_run_that_a_library_comes_from_moves_too(tmp_path: Path) -> None:
    path = other(tmp_path / "a.db", "first")
    with Store(path) as store:
        data, ids = upload(store, name="first")
        branch = store.begin(spec(data, "first", kind="eval"))
        kept = store.put_library(branch, Library((Experience(1, "Count."),)))
        later = spec(data, "second", library=kept)
        store.begin(later, plan=planned(plans(ids, 1)))
        store.begin(spec(data, "third"), plan=planned(plans(ids, 1)))
    written = Workspace(path).export_run("second", tmp_path / "out.db")
    assert written.runs == ["first", "second"]


def test_a_run_in_progress_moves_as_one_that_was_stopped(tmp_path: Path) -> None:
    path = other(tmp_path / "a.db")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE runs SET status = 'running'")
        db.execute("UPDATE invocations SET ended_at = NULL")
    Workspace(path).export_run("mine", tmp_path / "out.db")
    with Store(tmp_path / "out.db", "look") as store:
        row = store.read(lambda db: db.execute("SELECT status FROM runs").fetchone())
        assert row[0] == "stopped"
        assert not store.is_worked_on("mine")
