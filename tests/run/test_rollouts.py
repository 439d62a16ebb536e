"""Rollouts of a run: read while it is deleted; as rows in order, a page at a time."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from grpo_practice.core.errors import ConfigError, StoreError
from grpo_practice.run import rollouts as module
from grpo_practice.run.rollouts import rollouts_of, run_rows
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import export_rows, runs
from grpo_practice.store.queries.rollout_list import FIRST, Place
from grpo_practice.store.records import RunRow
from tests.run.project import Project, restarted


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


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    """A run of four steps that was restarted at the third: its line has two segments."""
    return await restarted(tmp_path / "p")


@pytest.fixture
def store(project: Project) -> Iterator[Store]:
    with Store(project.db) as store:
        yield store


@pytest.mark.long
async def test_the_rows_are_the_rollouts(project: Project) -> None:
    ws = Workspace(project.db)
    rows, whole = list(ws.rows("toy")), list(ws.rollouts("toy"))
    assert len(rows) == 72
    for row, report in zip(rows, whole, strict=True):
        played, rollout = report.rollout.played, report.rollout
        assert (row.step, row.slot, row.attempt) == (report.step, rollout.slot, rollout.attempt)
        assert (row.number, row.question) == (report.number, report.question)
        assert (row.gold, row.answer) == (rollout.sample.answer, played.response)
        assert (row.reward, row.outcome) == (report.reward, played.outcome)
        assert (row.tokens_in, row.seconds) == (played.usage.tokens_in, played.model_s)
        assert row.finished_at
        held = ws.experiences(row.library).library.experiences if row.library else ()
        shown = set(re.findall(r"^\[(E\d+)\]", report.system, re.MULTILINE))
        assert shown <= {e.id for e in held}  # the others are on trial
    assert [row.epoch for row in rows] == [0] * 36 + [1] * 36
    assert {row.branch for row in rows[:36]} != {row.branch for row in rows[36:]}
    assert [*ws.rows("toy:3")] == rows[54:]


@pytest.mark.parametrize("page", [1, 5, 72, 1000])
async def test_every_page_size_gives_the_same(
    store: Store, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [*run_rows(store, "toy")]
    monkeypatch.setattr(module, "PAGE", page)
    assert [*run_rows(store, "toy")] == expected


async def test_a_row_is_there_before_the_next_page_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = list[Place]()
    read = export_rows.export_page

    def counted(db: sqlite3.Connection, branch: Any, after: Place, n: int, **more: Any) -> Any:
        pages.append(after)
        return read(db, branch, after, n, **more)

    monkeypatch.setattr(export_rows, "export_page", counted)
    monkeypatch.setattr(module, "PAGE", 10)
    rows = run_rows(store, "toy")
    for _ in range(11):
        next(rows)
    assert pages == [FIRST, Place(0, 3, 0)]


async def test_a_page_is_found_by_an_index(store: Store) -> None:
    row = store.read(runs.get, "toy")
    assert row.head_branch is not None
    branch, plans = store.read(branches.load, row.head_branch), list[str]()

    def explain(db: sqlite3.Connection) -> None:
        class Explained:
            def execute(self, sql: str, values: Any) -> Any:
                plans.extend(r[3] for r in db.execute(f"EXPLAIN QUERY PLAN {sql}", values))
                return db.execute(sql, values)

        page: Callable[..., Any] = export_rows.export_page
        page(Explained(), branch, Place(1, 2, 1), 5, numbers={})

    store.read(explain)
    assert plans
    assert not [p for p in plans if p.startswith("SCAN") or "TEMP B-TREE FOR ORDER BY" in p]


async def test_a_run_that_played_nothing_has_no_rows(project: Project) -> None:
    project.change("DELETE FROM rollout_bodies")
    ws = Workspace(project.db)
    with pytest.raises(ConfigError, match="toy has no rollouts yet"):
        next(ws.rows("toy"))
    with pytest.raises(ConfigError, match="toy has no step 9"):
        next(ws.rows("toy:9"))
    with pytest.raises(ConfigError, match="no run"):
        next(ws.rows("nobody"))
