"""The record of batches: a later command finds the requests that have no answer yet."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_practice.core.batch_log import CallKey
from grpo_practice.core.calls import Address, Entry, Reply
from grpo_practice.store import Store
from grpo_practice.store.batch_log import SqlBatchLog, awaited, mean_seconds
from tests.store.helpers import planned, plans, spec, upload


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db") as opened:
        yield opened


@pytest.fixture
def log(store: Store) -> SqlBatchLog:
    dataset_id, ids = upload(store)
    (branch,) = store.begin_all([(spec(dataset_id), planned(plans(ids, 1)))])
    return store.batch_log(branch)


def at(log: SqlBatchLog, attempt: int) -> Address:
    return Address(log.branch.id, 0, 0, attempt, "play")


def key(log: SqlBatchLog, attempt: int) -> CallKey:
    return at(log, attempt), b"h" * 16, 0


def answer(store: Store, log: SqlBatchLog, attempt: int) -> None:
    message = {"role": "assistant", "content": "x"}
    entry = Entry(at(log, attempt), b"h" * 16, 0, 0, None, b"{}", b"[]", "m", Reply(message))
    with store.invocation(log.branch, "t") as invocation_id:
        asyncio.run(_put(store, log, invocation_id, entry))


async def _put(store: Store, log: SqlBatchLog, invocation_id: int, entry: Entry) -> None:
    await store.ledger(log.branch, invocation_id).put(entry)


def test_a_batch_is_unread_until_the_ledger_has_all_of_its_answers(
    store: Store, log: SqlBatchLog
) -> None:
    made = log.begin("m", "http://h/v1", [key(log, 0), key(log, 1)])
    log.update(made.id, file_id="file-1")
    log.update(made.id, remote_id="batch-1")
    (unread,) = log.unread()
    assert (unread.file_id, unread.remote_id) == ("file-1", "batch-1")
    log.update(made.id, status="completed")
    answer(store, log, 0)
    (unread,) = log.unread()
    assert list(unread.calls) == [key(log, 1)]
    answer(store, log, 1)
    assert log.unread() == []


def test_a_batch_that_failed_is_not_looked_for(log: SqlBatchLog) -> None:
    made = log.begin("m", "http://h/v1", [key(log, 0)])
    log.update(made.id, status="failed")
    assert log.unread() == []


def test_a_run_awaits_its_batches_from_the_upload_to_their_end(
    store: Store, log: SqlBatchLog
) -> None:
    first = log.begin("m", "http://h/v1", [key(log, 0), key(log, 1)])
    assert store.read(awaited) == {}
    log.update(first.id, file_id="file-1", remote_id="batch-1")
    second = log.begin(
        "m", "http://h/v1", [(Address(log.branch.id, 0, 0, 0, "judge"), b"h" * 16, 0)]
    )
    log.update(second.id, file_id="file-2", remote_id="batch-2")
    waits = store.read(awaited)["r"]
    assert (waits.requests, sorted(waits.stages)) == (3, ["judge", "play"])
    assert waits.since == first.created_at
    for made in (first, second):
        log.update(made.id, status="completed")
    assert store.read(awaited) == {}
    assert store.read(lambda db: mean_seconds(db, "m")) < 60
    assert store.read(lambda db: mean_seconds(db, "other")) == 0


def test_a_deleted_run_takes_its_batches_along(store: Store, log: SqlBatchLog) -> None:
    log.begin("m", "http://h/v1", [key(log, 0)])
    store.delete_runs(["r"])
    assert store.read(lambda db: db.execute("SELECT count(*) FROM batches").fetchone()[0]) == 0
