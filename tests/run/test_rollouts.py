"""Rollouts of a run: read while it is deleted; as rows in order, a page at a time, and as CSV."""

import csv
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from grpo_practice import Workspace
from grpo_practice.core.errors import ConfigError, StoreError
from grpo_practice.core.text import visible
from grpo_practice.export.rows import cell, json_line
from grpo_practice.run import rollouts as module
from grpo_practice.run.rollouts import rollouts_of, run_rows
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import export_rows, runs
from grpo_practice.store.queries.rollout_list import FIRST, Place
from grpo_practice.store.records import RunRow
from tests.reports.sample import HOSTILE
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


def change(project: Project, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute(sql, values)


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
        known = row.library and {
            f"[{e.id}]" for e in ws.experiences(row.library).library.experiences
        }
        assert all(label in report.system for label in known or ())
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


async def test_a_run_that_played_nothing_writes_nothing(project: Project, tmp_path: Path) -> None:
    change(project, "DELETE FROM rollout_bodies")
    ws = Workspace(project.db)
    for name in ("a.csv", "a.jsonl"):
        with pytest.raises(ConfigError, match="toy has no rollouts yet"):
            ws.export_rows("toy", tmp_path / name)
        assert not (tmp_path / name).exists()
    with pytest.raises(ConfigError, match="toy has no step 9"):
        next(ws.rows("toy:9"))
    with pytest.raises(ConfigError, match="no run"):
        next(ws.rows("nobody"))


async def test_csv_and_json_hold_the_same_rows(project: Project, tmp_path: Path) -> None:
    hostile = '=HYPERLINK("http://x.example")\n"a",b\x1b[2J\r\u202e'
    change(project, "UPDATE samples SET question = ? WHERE sample_id = 3", hostile)
    change(project, "UPDATE rollouts SET cost_micro = 1500000 WHERE step = 0")
    ws = Workspace(project.db)
    rows = [asdict(row) for row in ws.rows("toy")]
    assert ws.export_rows("toy", tmp_path / "a.jsonl").document()["rows"] == len(rows)
    assert ws.export_rows("toy", tmp_path / "a.csv").format == "csv"
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert any(row["question"] == hostile for row in rows)
    assert rows[0]["usd"] == 1.5
    with (tmp_path / "a.csv").open(newline="") as file:
        table = [*csv.DictReader(file)]
    assert [*table[0]] == [*rows[0]]
    assert len(table) == len(rows)
    shown = '\'=HYPERLINK("http://x.example")\n"a",b\\x1b[2J\\r\\u202e'
    for there, row in zip(table, rows, strict=True):
        assert there["question"] == (shown if row["question"] == hostile else row["question"])
        assert float(there["reward"]) == row["reward"]
        assert there["error"] == ""
    with pytest.raises(ConfigError, match="already exists"):
        ws.export_rows("toy", tmp_path / "a.csv")
    ws.export_rows("toy", tmp_path / "a.csv", format="jsonl", force=True)
    assert (tmp_path / "a.csv").read_text().splitlines() == lines


@given(HOSTILE)
@example("=1+1")
@example("\t=1")
@example(" \r\n-2+3")
@example("\uff1d1")
@example("@SUM(A1)")
@example("a;=1+1")
@example('a; "" =1+1')
@example("a\n=1|+1\t@1")
@example('";"=1')
def test_no_text_is_a_formula_or_a_second_row(text: str) -> None:
    made = cell(text)
    assert isinstance(made, str)
    assert made.lstrip()[:1] not in set("=+-@\uff1d\uff0b\uff0d\uff20")
    assert not made.startswith(("\t", "\r"))
    line = io.StringIO()
    csv.writer(line).writerow([made, made, 1])
    assert [*csv.reader(io.StringIO(line.getvalue(), newline=""))] == [[made, made, "1"]]
    for separator in ",;\t|":  # the spreadsheet's locale chooses it
        for row in csv.reader(io.StringIO(line.getvalue(), newline=""), delimiter=separator):
            for read in row:
                assert read.strip(' \t\r\n"')[:1] not in {*"=+-@\uff1d\uff0b\uff0d\uff20"}
    (exact,) = json_line({"text": text}).splitlines()
    assert json.loads(exact) == {"text": text}
    assert visible(exact) == exact


def test_a_long_text_of_separators_takes_linear_time() -> None:
    assert len(str(cell("\t" * 2_000_000))) == 2_000_001
