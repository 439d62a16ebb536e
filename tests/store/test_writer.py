"""The writer: what resolves is on disk, a bad job is alone, a cancelled waiter loses nothing."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from grpo_practice.core.errors import StoreError
from grpo_practice.store.db import connect
from grpo_practice.store.writer import CROWD, Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "w.db"
    db = connect(path)
    db.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)")
    db.close()
    return path


def insert(x: int) -> Callable[[sqlite3.Connection], int]:
    return lambda db: db.execute("INSERT INTO t VALUES (?)", (x,)).rowcount


class Hold:
    """Keeps the writer busy until it is released; what is queued meanwhile stays queued."""

    def __init__(self, writer: Writer) -> None:
        self._began, self._end = threading.Event(), threading.Event()
        writer.submit(self._work)
        self._began.wait()  # until then its batch takes in what is queued after it

    def _work(self, _: sqlite3.Connection) -> None:
        self._began.set()
        self._end.wait()

    def release(self) -> None:
        self._end.set()


Holds = Callable[[Writer], Hold]


@pytest.fixture
def hold() -> Iterator[Holds]:
    """Hold a writer, at most until the test ends."""
    holds = list[Hold]()

    def held(writer: Writer) -> Hold:
        holds.append(Hold(writer))
        return holds[-1]

    yield held
    for each in holds:
        each.release()


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


async def test_a_cancelled_waiter_does_not_cancel_the_write(path: Path, hold: Holds) -> None:
    writer = Writer(path)
    block = hold(writer)

    async def wait() -> None:
        await asyncio.wrap_future(writer.submit(insert(7)))

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    block.release()
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
    assert isinstance(bad.exception(60), StoreError)
    assert (before.result(60), after.result(60)) == (1, 1)
    assert writer.submit(insert(3)).result(60) == 1
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


class Rows:
    """Inserts rows of one kind; keeps how many came at once."""

    def __init__(self) -> None:
        self.at_once: list[int] = []

    def many(self, db: sqlite3.Connection, items: Sequence[int]) -> list[int]:
        self.at_once.append(len(items))
        db.executemany("INSERT INTO t VALUES (?)", [(x,) for x in items])
        return [10 * x for x in items]


async def test_rows_of_one_kind_are_written_together_and_answered_each(
    path: Path, hold: Holds
) -> None:
    writer, kind = Writer(path), Rows()
    block = hold(writer)
    answers = asyncio.gather(*(writer.row(kind.many, x) for x in range(20)))
    await asyncio.sleep(0)
    block.release()
    assert await answers == [10 * x for x in range(20)]
    assert kind.at_once == [20]
    writer.close()
    assert rows(path) == list(range(20))


async def test_a_bad_row_is_alone_among_its_kind(path: Path) -> None:
    writer, kind = Writer(path), Rows()
    waiting = (writer.row(kind.many, x) for x in (1, 2, 2, 3))
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(a) for a in answers].count(StoreError) == 1
    writer.close()
    assert rows(path) == [1, 2, 3]


async def test_what_is_queued_is_written_before_what_comes_after(path: Path, hold: Holds) -> None:
    writer, kind = Writer(path), Rows()
    block = hold(writer)
    for x in range(10):
        await writer.row_soon(kind.many, x)
    counted = "SELECT count(*) FROM t"
    seen = asyncio.ensure_future(writer.write(lambda db: db.execute(counted).fetchone()[0]))
    await asyncio.sleep(0)
    block.release()
    assert await seen == 10
    writer.close()


@pytest.mark.parametrize("first", ["nobody", "a failure", "one who gave up", "a row"])
async def test_nothing_rests_on_a_row_that_could_not_be_written(path: Path, first: str) -> None:
    """Whoever is told of it first; what was paid for is written all the same."""
    writer, kind = Writer(path), Rows()
    await writer.row(kind.many, 1)
    await writer.row_soon(kind.many, 1)
    if first == "a failure":
        writer.submit(insert(2))
    elif first == "one who gave up":
        waiter = asyncio.ensure_future(writer.row(kind.many, 2))
        await asyncio.sleep(0)
        waiter.cancel()
    elif first == "a row":
        with pytest.raises(StoreError, match="UNIQUE"):
            await writer.row(kind.many, 2)
    with pytest.raises(StoreError, match="UNIQUE"):
        await writer.write(insert(3))
    writer.submit(insert(4)).result()  # how the run ended is still on record
    with pytest.raises(StoreError, match="UNIQUE"):
        writer.close()
    assert rows(path) == ([1, 4] if first == "nobody" else [1, 2, 4])


async def test_a_crowd_has_to_wait(path: Path, hold: Holds) -> None:
    writer, kind = Writer(path), Rows()
    block = hold(writer)
    for x in range(CROWD + 1):
        soon = asyncio.ensure_future(writer.row_soon(kind.many, x))
        await asyncio.sleep(0)
        assert soon.done() == (x < CROWD)
    block.release()
    await soon
    assert len(rows(path)) == CROWD + 1
    writer.close()


async def test_a_loop_that_is_gone_harms_no_write(path: Path, hold: Holds) -> None:
    writer = Writer(path)
    block = hold(writer)

    def elsewhere() -> None:
        async def give_up() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(writer.write(insert(7)), 0.01)

        asyncio.run(give_up())

    await asyncio.to_thread(elsewhere)
    block.release()
    assert await writer.write(insert(8)) == 1
    writer.close()
    assert rows(path) == [7, 8]


async def test_a_cancelled_waiter_takes_no_neighbours_answer(path: Path, hold: Holds) -> None:
    writer, kind = Writer(path), Rows()
    block = hold(writer)
    first, second = (asyncio.create_task(writer.row(kind.many, x)) for x in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    block.release()
    assert await asyncio.wait_for(second, 60) == 20
    writer.close()
    assert rows(path) == [1, 2]
