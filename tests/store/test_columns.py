"""A value reaches its column, and a column its field, by name: never by place."""

import ast
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from grpo_practice.core.calls import Address, Entry, Reply, Usage
from grpo_practice.core.types import Rollout, Trajectory, Verdict
from grpo_practice.store import Store, datasets, ledger, rollouts, steps
from grpo_practice.store.db import Row, insert_all
from grpo_practice.store.records import GroupRow, RolloutPrompt, Unscored
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
        store._write(lambda db: db.execute("ALTER TABLE rollouts ADD COLUMN added TEXT").rowcount)
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 1)))

        def more(save: rollouts.Save, system_sha: bytes, finished_at: str) -> Row:
            return {**written(save, system_sha, finished_at), "added": "NEW"}

        monkeypatch.setattr(rollouts, "_columns", more)
        row = store.read(steps.on_line, branch)[0]
        (sample_id, _), *_ = row.plan.slots
        sample = store.read(datasets.samples_of, row.plan)[0]
        played = Trajectory("ok", "four", [], turns=3, tool_calls=2)
        rollout = Rollout(0, 0, sample, played, Verdict(0.5, "nearly"))
        await store.save_rollout(branch, 0, rollout, RolloutPrompt(7, "system", None))
        await store.flushed()
        stored = store.read(lambda db: dict(db.execute("SELECT * FROM rollouts").fetchone()))
        assert (stored["added"], stored["sample_id"], stored["seed"]) == ("NEW", sample_id, 7)
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


def filled(kind: type, **given: Any) -> Any:
    """A value of a dataclass with something of its own, and no default, in each field."""
    hints = get_type_hints(kind)
    for n, field in enumerate(f for f in fields(kind) if f.init and f.name not in given):
        hint, default = hints[field.name], field.default
        (part, *_) = [t for t in get_args(hint) if t is not type(None)] or [hint]
        if part is bool:
            given[field.name] = default is not True
        elif isinstance(part, type) and is_dataclass(part):
            given[field.name] = filled(part)
        elif part in (int, float, str):
            given[field.name] = part(n + 2)
        else:
            raise AssertionError(f"give {kind.__name__}.{field.name} a value in this test")
    return kind(**given)


def columns(store: Store, table: str) -> set[str]:
    """The columns of a table."""
    rows = store.read(lambda db: db.execute(f"PRAGMA table_info({table})").fetchall())
    return {row["name"] for row in rows}


DICT = "the dict that writes a row and the columns of its table differ"
BACK = "a field is not stored, or not read back: its default comes in its place"


async def test_every_field_of_a_rollout_has_its_column_and_comes_back(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 1)))
        row = store.read(steps.on_line, branch)[0]
        sample = store.read(datasets.samples_of, row.plan)[0]
        played = filled(Trajectory, outcome="ok", transcript=[])
        place = {"slot": 0, "attempt": 0, "sample": sample, "played": played}
        rollout = filled(Rollout, **place, verdict=filled(Verdict, reward=0.5))
        prompt = RolloutPrompt(7, "system", None)
        await store.save_rollout(branch, 0, rollout, prompt)
        await store.flushed()
        found = store.read(rollouts.stored, branch, row, transcripts=False)
        assert found[0, 0][1] == rollout, f"{BACK} (store/rollouts.py: _columns, _rollout)"
        save = rollouts.Save(branch.id, 0, rollout, prompt, branch.verifier_id)
        written = save.key.keys() | rollouts._columns(save, b"", "").keys()
        assert written | {"rollout_id"} == columns(store, "rollouts"), DICT


async def test_every_field_of_a_call_has_its_column_and_comes_back(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, _ = upload(store)
        branch = store.begin(spec(data))
        reply = filled(
            Reply, message={"content": "x"}, usage=filled(Usage), replayed=True, call_id=1
        )
        address = Address(branch.id, 0, 0, 0, "play")
        hashed, head = b"h" * 16, b"{}"
        entry = Entry(address, hashed, 0, 0, None, head, b"[]", "m", reply)
        with store.invocation(branch, "t") as invocation_id:
            calls = store.ledger(branch, invocation_id)
            assert await calls.put(entry) == reply.call_id
            found = await calls.get(address, hashed, 0)
        assert found == reply, f"{BACK} (store/ledger.py: _call, _reply)"
        written = ledger._call(entry).keys()
        assert written | {"call_id", "invocation_id", "created_at"} == columns(store, "calls"), DICT


def test_the_fields_of_a_group_are_its_columns(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        own = {field.name for field in fields(GroupRow)}
        assert own | {"branch_id", "step"} == columns(store, "groups"), DICT


@pytest.mark.parametrize(("left_out", "column"), [((), None), (("E1", "E12"), '["E1", "E12"]')])
async def test_what_a_rollout_was_not_shown_is_stored(
    tmp_path: Path, left_out: tuple[str, ...], column: str | None
) -> None:
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 1)))
        row = store.read(steps.on_line, branch)[0]
        sample = store.read(datasets.samples_of, row.plan)[0]
        rollout = Rollout(0, 0, sample, Trajectory("ok", "four", []), Verdict(1.0))
        await store.save_rollout(branch, 0, rollout, RolloutPrompt(7, "s", None, left_out))
        await store.flushed()
        found = store.read(lambda db: db.execute("SELECT left_out FROM rollouts").fetchone())
    assert found["left_out"] == column
