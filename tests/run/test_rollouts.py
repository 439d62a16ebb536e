"""Rollouts that are read while somebody deletes their run."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.core.errors import StoreError
from grpo_practice.run.rollouts import rollouts_of
from grpo_practice.store import Store
from grpo_practice.store.queries import runs
from grpo_practice.store.records import RunRow
from tests.run.project import Project


async def test_a_run_that_is_deleted_while_its_rollouts_are_read_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    await project.practise()
    get = runs.get

    def gone(db: sqlite3.Connection, name: str) -> RunRow:
        row = get(db, name)
        with closing(sqlite3.connect(project.db)) as other:
            other.execute("UPDATE runs SET head_branch = NULL")
            other.execute("DELETE FROM branches")
            other.commit()
        return row

    with Store(project.db) as store:
        found = rollouts_of(store, "toy")
        next(found)
        # The generator goes on with the step it has read, and finds the run gone at the next.
        store.delete_runs(["toy"])
        with pytest.raises(StoreError, match="deleted while it was being read"):
            list(found)
    await project.practise()
    monkeypatch.setattr(runs, "get", gone)
    with (
        Store(project.db) as store,
        pytest.raises(StoreError, match="deleted while it was being read"),
    ):
        list(rollouts_of(store, "toy"))
