"""A run is foreseen as it would be begun: its branch, its line, its steps; nothing is written."""

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import DataError, StoreError
from grpo_practice.core.types import Experience, Library, Sample
from grpo_practice.store import Store, datasets, steps
from grpo_practice.store.records import Branch, StepRow
from tests.store.helpers import ONE, planned, plans, spec, upload
from tests.store.test_runs import add, close

GIVEN = Library((Experience(3, "given"),), 4)
OTHER = {"a": 2}
EVAL: dict[str, Any] = {"name": "r/eval", "kind": "eval", "library": GIVEN}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int, int]] = {
    "a new run": ({"name": "new"}, {}, 3, 2),
    "a new run from a library": ({"name": "new", "library": GIVEN}, {}, 3, 2),
    "an evaluation of a library by hand": (EVAL, {}, 3, 2),
    "a run that goes on": ({}, {}, 4, 2),
    "a run that grows": ({}, {}, 6, 3),
    "a restart": ({}, {"restart_step": 1}, 4, 2),
    "a restart from another library": ({"library": GIVEN}, {"restart_step": 0}, 4, 2),
    "a restart of a restart, above it": ({"identity": OTHER}, {"restart_step": 1}, 4, 2),
    "a restart of a restart, below it": ({"identity": OTHER}, {"restart_step": 3}, 4, 2),
    "another configuration before a step": ({"name": "begun", "identity": OTHER}, {}, 3, 2),
    "the answers of another run": ({"name": "r/eval", "kind": "eval", "reuses": 1}, {}, 3, 2),
}
"""How the run differs, how it is begun, and how many steps and attempts it plans."""


def parts(branch: Branch, rows: list[StepRow]) -> Any:
    """What a forecast reads of both; a branch that is there has a number, and its library has."""

    def at(number: int) -> int:
        return 0 if number == branch.id else number

    return (
        replace(
            branch,
            id=0,
            line=tuple(s._replace(branch_id=at(s.branch_id)) for s in branch.line),
            library=replace(branch.library, id=0),
            fence_key=b"",
        ),
        [replace(row, branch_id=at(row.branch_id)) for row in rows],
    )


async def fill(path: Path) -> None:
    """A run of four steps, of which three are closed; restarted at 2; and one with a plan alone."""
    with Store(path) as store:
        data, ids = upload(store)
        first = store.begin(spec(data), plan=planned(plans(ids, 4)))
        for step in range(3):
            await close(store, first, step, add(f"first {step}"))
        second = store.begin(spec(data), restart_step=2, plan=planned(plans(ids, 4)))
        await close(store, second, 2, add("second 2"))
        store.begin(spec(data, "begun"), plan=planned(plans(ids, 3)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    asyncio.run(fill(tmp_path / "s.db"))
    return tmp_path / "s.db"


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_foreseen_as_it_is_begun(path: Path, case: str) -> None:
    given, how, n, attempts = CASES[case]
    reuses = given.get("reuses")
    wanted = spec(1, **{k: v for k, v in given.items() if k != "reuses"})
    wanted = replace(wanted, reuses=reuses, identity=given.get("identity", ONE))
    before, files = path.read_bytes(), {*path.parent.iterdir()}
    with Store(path, "foresee") as store:
        plan = planned(plans(store.read(datasets.sample_ids, 1), n, attempts))
        foreseen = parts(*store.foresee(wanted, plan, **how))
    assert path.read_bytes() == before
    assert {*path.parent.iterdir()} == files
    with Store(path) as store:
        branch = store.begin(wanted, plan, **how)
        assert foreseen == parts(branch, store.read(steps.on_line, branch))


def test_a_dataset_is_seen_by_the_one_who_foresees(path: Path) -> None:
    mine = [Sample("q1?", "1"), Sample("new?", "1")]
    before = path.read_bytes()
    with Store(path, "foresee") as store, Store(path) as other:
        row, _ = store.add_dataset("mine", mine, origin="m.csv", replace=True)
        ids = store.read(datasets.sample_ids, row.id)
        assert ids[0] == other.read(datasets.sample_ids, 1)[1]
        assert [s.question for s in store.read(datasets.samples, row.id)] == ["q1?", "new?"]
        again, new = store.add_dataset("mine", mine, origin="m.csv", replace=True)
        assert (again, new) == (row, False)
        second, _ = store.add_dataset("two", mine[1:], origin="n.csv", replace=True)
        assert store.read(datasets.sample_ids, second.id) == ids[1:]
        with pytest.raises(StoreError, match="is read-only"):
            store.hide_dataset("d")
        with pytest.raises(StoreError, match="is read-only"):
            store.read(lambda db: db.execute("DELETE FROM main.samples"))
        with pytest.raises(DataError, match="no dataset 'mine'"):
            other.read(datasets.get, "mine")
    assert path.read_bytes() == before


def test_all_is_read_as_it_stood_at_first(path: Path) -> None:
    with Store(path, "foresee") as store, Store(path) as other:
        known = store.read(datasets.newest)
        other.add_dataset("late", [Sample("q", "1")], origin="x", replace=False)
        assert len(other.read(datasets.newest)) == len(known) + 1
        assert store.read(datasets.newest) == known


@pytest.mark.parametrize("made", [None, "empty", "blank"])
def test_a_missing_or_empty_file_is_a_database_without_rows(
    tmp_path: Path, made: str | None
) -> None:
    path = tmp_path / "none.db"
    if made == "empty":
        path.touch()
    if made == "blank":
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE t (x)")
            db.execute("DROP TABLE t")
        db.close()
    before = path.read_bytes() if made else None
    with Store(path, "foresee") as store:
        row, _ = store.add_dataset("d", [Sample("q", "1")], origin="d.csv", replace=True)
        ids = store.read(datasets.sample_ids, row.id)
        branch, rows = store.foresee(spec(row.id), planned(plans(ids, 2)))
    assert (branch.id, len(rows)) == (0, 2)
    assert (path.read_bytes() if made else None) == before
    assert [p.name for p in tmp_path.iterdir()] == ([path.name] if made else [])
