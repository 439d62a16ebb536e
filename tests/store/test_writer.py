"""The writer: what resolves is on disk, a bad job is alone, a cancelled waiter loses nothing."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_practice.errors import StoreError
from grpo_practice.store.db import connect
from grpo_practice.store.writer import Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "w.db"
    db = connect(path)
    db.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)")
    db.close()
    return path


def insert(x: int) -> Callable[[sqlite3.Connection], int]:
    return lambda db: db.execute("INSERT INTO t VALUES (?)", (x,)).rowcount


def rows(path: Path) -> list[int]:
    db = sqlite3.connect(path)
    try:
        return [x for (x,) in db.execute("SELECT x FROM t ORDER BY x")]
    finally:
        db.close()


def test_what_resolved_is_visible_to_others(path: Path) -> None:
    writer = Writer(path)
    for x in range(20):
        assert writer.submit(insert(x)).result() == 1
        assert x in rows(path)
    writer.close()


def test_a_bad_job_takes_no_neighbour_down(path: Path) -> None:
    writer = Writer(path)
    futures = [writer.submit(insert(x)) for x in (1, 2, 2, 3)]
    writer.close()
    failed = [f for f in futures if f.exception() is not None]
    assert len(failed) == 1
    assert rows(path) == [1, 2, 3]


async def test_a_cancelled_waiter_does_not_cancel_the_write(path: Path) -> None:
    writer = Writer(path)
    block = writer.submit(lambda _: time.sleep(0.05))

    async def wait() -> None:
        await asyncio.wrap_future(writer.submit(insert(7)))

    task = asyncio.create_task(wait())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wrap_future(block)
    writer.close()
    assert rows(path) == [7]


def test_closing_waits_for_everything_submitted(path: Path) -> None:
    writer = Writer(path)
    for x in range(1200):
        writer.submit(insert(x))
    writer.close()
    assert len(rows(path)) == 1200


def test_a_commit_that_fails_harms_nobody_else(path: Path) -> None:
    """A deferred foreign key is only checked by COMMIT."""
    db = connect(path)
    db.execute("CREATE TABLE c (t INTEGER REFERENCES t(x) DEFERRABLE INITIALLY DEFERRED)")
    db.close()
    writer = Writer(path)
    before = writer.submit(insert(1))
    bad = writer.submit(lambda db: db.execute("INSERT INTO c VALUES (99)"))
    after = writer.submit(insert(2))
    assert isinstance(bad.exception(5), StoreError)
    assert (before.result(5), after.result(5)) == (1, 1)
    assert writer.submit(insert(3)).result(5) == 1
    writer.close()
    assert rows(path) == [1, 2, 3]


def test_a_file_that_cannot_be_opened_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        Writer(tmp_path / "missing" / "w.db")


def test_nothing_can_be_submitted_once_it_is_closed(path: Path) -> None:
    writer = Writer(path)
    writer.close()
    with pytest.raises(StoreError, match="closed"):
        writer.submit(insert(1))
    writer.close()
