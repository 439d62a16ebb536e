"""The file beside the database: what it says is what is stored, and it may go at any time."""

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.store import Store, branches, sidecar, sidecar_reads
from grpo_practice.store.queries import rollout_list, runs
from grpo_practice.store.queries.rollout_list import RolloutRow, Wanted
from grpo_practice.store.reading import open_to_look
from grpo_practice.store.records import Branch
from grpo_practice.store.sidecar import Progress, Sidecar
from grpo_practice.store.sidecar_reads import Key, Wish
from grpo_practice.workspace import Workspace
from tests.app.project import Project, restarted


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    """A run of two segments, some of whose rollouts failed; and an evaluation of it."""
    project = await restarted(tmp_path / "p")
    await project.evaluate()
    change(project, "UPDATE rollouts SET tokens_out = rollout_id % 7 * 100, model_ms = slot * 10")
    return project


def change(project: Project, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute(sql, values)


def refreshed(project: Project, steps: int = 1_000) -> Progress:
    with closing(Sidecar(project.db)) as made, closing(open_to_look(project.db)) as db:
        return made.refresh(db, steps=steps)


def head(project: Project, run: str = "toy") -> Branch:
    with Store(project.db) as store:
        return store.read(branches.load, store.read(runs.get, run).head_branch or 0)


def pages_of(project: Project, wish: dict[str, Any], n: int = 7) -> list[Key]:
    db = sidecar_reads.opened(project.db)
    assert db is not None
    found, after = list[Key](), None
    with closing(db):
        while page := sidecar_reads.sorted_page(db, head(project), Wish(**wish, after=after), n):
            found, after = [*found, *page], page[-1]
    return found


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", ["reward", "tokens", "seconds"])
async def test_pages_are_the_sorted_list(project: Project, sort: Any, descending: bool) -> None:
    assert refreshed(project).complete
    with Store(project.db) as store:
        rows = store.read(rollout_list.list_rollouts, head(project), Wanted(), 1_000)
    value: Callable[[RolloutRow], float] = {
        "reward": lambda row: -1.0 if row.reward is None else row.reward,
        "tokens": lambda row: row.tokens or 0,
        "seconds": lambda row: round(row.seconds * 1000),
    }[sort]
    wanted = sorted(((value(r), r.step, r.slot, r.attempt) for r in rows), reverse=descending)
    assert pages_of(project, {"sort": sort, "descending": descending}) == wanted


async def test_those_below_a_reward(project: Project) -> None:
    change(project, "UPDATE verdicts SET reward = NULL, error = 'x' WHERE rollout_id % 9 = 0")
    refreshed(project)
    found = pages_of(project, {"sort": "tokens", "descending": True, "below": 1.0})
    with Store(project.db) as store:
        rows = store.read(rollout_list.list_rollouts, head(project), Wanted(failed=True), 1_000)
    assert {key[1:] for key in found} == {(r.step, r.slot, r.attempt) for r in rows}
    assert any(row.reward is None for row in rows)


async def test_words_of_answers_are_found(project: Project) -> None:
    change(project, "UPDATE rollout_bodies SET response = 'Köln an bicycles' WHERE rollout_id = 5")
    change(project, "UPDATE rollout_bodies SET response = 'bicycle! (Köln)' WHERE rollout_id = 9")
    refreshed(project)
    of = [branch for (branch,) in project.query("SELECT branch_id FROM branches")]
    db = sidecar_reads.opened(project.db)
    assert db is not None
    with closing(db):
        assert sidecar_reads.with_words(db, ["bicycle", "köln"], of, 0, 10) == [5, 9]
        assert sidecar_reads.with_words(db, ["bicycle"], of, 5, 10) == [9]
        assert sidecar_reads.with_words(db, ["bicycle"], [99], 0, 10) == []
        for hostile in ('"', "NEAR(a b)", "words:x", "*", "a OR b", "\0", "-", "(" * 1_000):
            sidecar_reads.with_words(db, [hostile], of, 0, 10)


async def test_it_takes_in_some_steps_at_a_call_and_each_answer_once(project: Project) -> None:
    total = project.query("SELECT count(*) FROM steps")[0][0]
    with closing(Sidecar(project.db)) as made, closing(open_to_look(project.db)) as db:
        assert made.refresh(db, steps=2) == Progress(2, total)
        while not made.refresh(db, steps=2).complete:
            pass
        before = keys(project)
        # A step that is opened again, and whose answers have their rewards already.
        change(project, "UPDATE steps SET status = 'open', sums = NULL WHERE step = 1")
        assert made.refresh(db).complete
        assert keys(project) == before
    change(project, "UPDATE rollout_bodies SET response = 'unheard' WHERE rollout_id = 3")
    refreshed(project)
    own = sidecar_reads.opened(project.db)
    assert own is not None
    with closing(own):
        rows = own.execute("SELECT rowid FROM answers WHERE answers MATCH 'boxed'").fetchall()
    assert len(rows) == len(set(rows)) > 0


def keys(project: Project) -> list[Any]:
    with closing(sqlite3.connect(sidecar.path_of(project.db))) as db:
        return db.execute("SELECT * FROM keys ORDER BY 1, 2, 3, 4").fetchall()


async def test_a_rollout_that_is_scored_later_moves(project: Project) -> None:
    change(project, "UPDATE steps SET status = 'open', sums = NULL WHERE step = 3")
    one = project.query("SELECT max(rollout_id) FROM v_rollouts WHERE run_id = 'toy'")[0][0]
    change(project, "DELETE FROM verdicts WHERE rollout_id = ?", one)
    refreshed(project)
    assert -1.0 in {key[0] for key in pages_of(project, {"sort": "reward"})}
    change(
        project,
        """INSERT INTO verdicts (rollout_id, judge_id, reward)
           SELECT ?, judge_id, 0.5 FROM verdicts LIMIT 1""",
        one,
    )
    change(project, "UPDATE steps SET status = 'closed', closed_at = 'later' WHERE step = 3")
    refreshed(project)
    assert 0.5 in {key[0] for key in pages_of(project, {"sort": "reward"})}


async def test_it_is_private_and_goes_with_a_run(project: Project) -> None:
    refreshed(project)
    path = sidecar.path_of(project.db)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    Workspace(project.db).delete_run("toy/eval")
    assert not path.exists()
    assert refreshed(project).complete


async def test_numbers_that_are_given_again_find_nothing_old(project: Project) -> None:
    refreshed(project)
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute("UPDATE branches SET created_at = 'another' WHERE branch_id = 1")
        db.execute("UPDATE rollout_bodies SET response = 'nothing of before'")
    refreshed(project)
    own = sidecar_reads.opened(project.db)
    assert own is not None
    with closing(own):
        assert not own.execute("SELECT 1 FROM answers WHERE answers MATCH 'boxed'").fetchall()


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"x" * 100, b"no database" * 500])
async def test_a_file_that_is_damaged_or_foreign_is_made_anew(
    project: Project, content: bytes
) -> None:
    path = sidecar.path_of(project.db)
    path.write_bytes(content)
    assert sidecar_reads.opened(project.db) is None
    assert refreshed(project).complete
    assert len(pages_of(project, {"sort": "reward"})) == 72


async def test_a_file_that_is_damaged_beyond_its_first_page_is_made_anew(project: Project) -> None:
    refreshed(project)
    path = sidecar.path_of(project.db)
    raw = path.read_bytes()
    path.write_bytes(raw[:4096] + b"\xff" * (len(raw) - 4096))
    assert refreshed(project).complete
    assert len(pages_of(project, {"sort": "reward"})) == 72


async def test_an_error_of_the_database_does_not_cost_the_file(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed(project)
    before = sidecar.path_of(project.db).stat().st_ino
    monkeypatch.setattr(sidecar, "_STATES", "SELECT * FROM no_such_table")
    with pytest.raises(sqlite3.DatabaseError):
        refreshed(project)
    assert sidecar.path_of(project.db).stat().st_ino == before


async def test_a_file_that_is_deleted_under_its_maker_is_made_again(project: Project) -> None:
    with closing(Sidecar(project.db)) as made, closing(open_to_look(project.db)) as db:
        assert made.refresh(db, steps=1_000).complete
        sidecar.remove(project.db)
        assert made.refresh(db, steps=1_000).complete
        assert len(pages_of(project, {"sort": "reward"})) == 72


async def test_two_makers_come_to_keep_up_one_file(project: Project) -> None:
    with (
        closing(Sidecar(project.db)) as one,
        closing(Sidecar(project.db)) as other,
        closing(open_to_look(project.db)) as db,
    ):
        sidecar.remove(project.db)
        one.refresh(db, steps=1)
        inode = sidecar.path_of(project.db).stat().st_ino
        total = project.query("SELECT count(*) FROM steps")[0][0]
        assert other.refresh(db, steps=1) == Progress(2, total)
        assert sidecar.path_of(project.db).stat().st_ino == inode


async def test_a_file_of_another_version_is_made_anew(project: Project) -> None:
    refreshed(project)
    with closing(sqlite3.connect(sidecar.path_of(project.db))) as db:
        db.execute("PRAGMA user_version = 99")
    assert sidecar_reads.opened(project.db) is None
    assert refreshed(project).complete


@pytest.mark.parametrize("sort", ["reward", "tokens", "seconds"])
@pytest.mark.parametrize("descending", [False, True])
async def test_a_page_is_read_by_an_index_in_its_order(
    project: Project, sort: Any, descending: bool
) -> None:
    refreshed(project)
    db = sidecar_reads.opened(project.db)
    assert db is not None
    asked = list[str]()
    with closing(db):
        db.set_trace_callback(asked.append)
        for below in (None, 1.0):
            wish = Wish(sort, descending, below, (0.5, 1, 2, 0))
            sidecar_reads.sorted_page(db, head(project), wish, 5)
        db.set_trace_callback(None)
        for sql in asked:
            plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
            column = "ms" if sort == "seconds" else sort
            assert f"USING COVERING INDEX keys_{column} (branch_id=? AND " in plan[0], plan
            assert len(plan) == 1, plan


async def test_a_step_is_put_in_without_a_look_at_the_others(project: Project) -> None:
    refreshed(project)
    change(project, "UPDATE steps SET closed_at = 'later'")
    asked = list[str]()
    with closing(Sidecar(project.db)) as made, closing(open_to_look(project.db)) as db:
        made._db.set_trace_callback(asked.append)
        made.refresh(db)
        made._db.set_trace_callback(None)
        looks = {sql for sql in asked if "FROM keys" in sql}
        assert len(looks) > 4
        for sql in looks:
            plan = [row[3] for row in made._db.execute(f"EXPLAIN QUERY PLAN {sql}")]
            assert plan == ["SEARCH keys USING PRIMARY KEY (branch_id=? AND step=?)"], sql
