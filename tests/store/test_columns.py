"""A value reaches its column, and a column its field, by name: never by place."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from grpo_practice.store import Store, datasets, rollouts, steps
from grpo_practice.store.db import Row, insert_all
from grpo_practice.store.records import RolloutPrompt, Unscored
from grpo_practice.types import Rollout, Trajectory, Verdict
from tests.store.helpers import planned, plans, spec, upload

ROOT = Path(__file__).parents[2] / "src/grpo_practice/store"
FILES = sorted(ROOT.rglob("*.py"))
BY_PLACE = re.compile(r"INSERT\b[^:]*\bVALUES\s*\([^:)]*\?|INSERT\s+INTO\s+\w+\s+VALUES", re.S)
WRITE = "write a row as a dict of its columns: insert(db, table, {column: value}) of store/db.py"
READ = "name the columns as the fields (SELECT x AS field) and make it with Value(**row)"


def texts(tree: ast.AST) -> list[str]:
    """Every string of a module, f-strings with braces where their values stand."""
    return [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)] + [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def values_by_place(tree: ast.AST) -> list[str]:
    """Every `Value(*row)`: a class of ours made of a row's columns in their order."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id[:1].isupper()
        if any(isinstance(a, ast.Starred) and "row" in ast.unparse(a) for a in call.args)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_rows_are_written_and_read_by_the_names_of_their_columns(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert [text for text in texts(tree) if BY_PLACE.search(text)] == [], WRITE
    assert values_by_place(tree) == [], READ


def test_rows_by_place_are_seen() -> None:
    written = ast.parse("db.execute('INSERT INTO t (a, b) VALUES (?, ?)', (1, 2))")
    assert any(BY_PLACE.search(text) for text in texts(written))
    assert any(BY_PLACE.search(text) for text in texts(ast.parse("x = 'INSERT INTO t VALUES (1)'")))
    assert values_by_place(ast.parse("Holder(*row)")) == ["Holder(*row)"]


async def test_a_column_added_last_lands_in_no_other_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Add a column to a rollout's row as CONTRIBUTING says; every other one keeps its value."""
    written = rollouts._columns
    with Store(tmp_path / "s.db") as store:
        store._write(lambda db: db.execute("ALTER TABLE rollouts ADD COLUMN host TEXT").rowcount)
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 1)))

        def more(save: rollouts.Save, system_sha: bytes, finished_at: str) -> Row:
            return {**written(save, system_sha, finished_at), "host": "HOST-A"}

        monkeypatch.setattr(rollouts, "_columns", more)
        row = store.read(steps.on_line, branch)[0]
        (sample_id, _), *_ = row.plan.slots
        sample = store.read(datasets.samples_of, row.plan)[0]
        played = Trajectory("ok", "four", [], turns=3, tool_calls=2)
        rollout = Rollout(0, 0, sample, played, Verdict(0.5, "nearly"))
        await store.save_rollout(branch, 0, rollout, RolloutPrompt(7, "system", None))
        await store.flushed()
        stored = store.read(lambda db: dict(db.execute("SELECT * FROM rollouts").fetchone()))
        assert (stored["host"], stored["sample_id"], stored["seed"]) == ("HOST-A", sample_id, 7)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*", stored["finished_at"])
        found = store.read(rollouts.stored, branch, row, transcripts=False)
        assert found[0, 0][1] == rollout


def test_every_field_of_a_verdict_has_the_column_of_its_name(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        info = store.read(lambda db: db.execute("PRAGMA table_info(verdicts)").fetchall())
    columns = {row["name"] for row in info}
    said = {field.name for value in (Verdict, Unscored) for field in fields(value)}
    assert said <= columns, "a new field of a verdict needs a column: see CONTRIBUTING, a column"
    assert said <= set(rollouts._VERDICT_COLUMNS)


def test_rows_that_differ_in_columns_are_not_written_in_part(tmp_path: Path) -> None:
    rows: list[Row] = [{"sha256": b"1", "body": "a"}, {"sha256": b"2", "body": "b", "more": 1}]
    with (
        Store(tmp_path / "x.db") as store,
        pytest.raises(AssertionError, match="differ in columns"),
    ):
        store.read(lambda db: insert_all(db, "texts", rows))
