"""Batches of requests; each is recorded before it is sent."""

import json
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from grpo_practice.core.batch_log import CallKey, StoredBatch
from grpo_practice.core.calls import Address
from grpo_practice.core.text import count, to_the_minute
from grpo_practice.store.db import insert, insert_all, now
from grpo_practice.store.records import Branch

Do = Callable[[Callable[[sqlite3.Connection], Any]], Any]
RECENT = "t.ended_at IS NULL AND julianday('now') - julianday(t.created_at) < 2"
"""Condition for a batch that may be under way: endpoints end a batch after a day."""


@dataclass(frozen=True, slots=True)
class SqlBatchLog:
    """The batches of a run (a `batch_log.BatchLog`)."""

    read: Do
    write: Do
    flushed: Callable[[], Coroutine[Any, Any, None]]
    branch: Branch
    """Newest branch of the run."""

    def unread(self) -> list[StoredBatch]:
        """Return the batches with calls that the ledger does not contain, oldest first."""
        found: list[StoredBatch] = self.read(lambda db: _unread(db, self.branch))
        return found

    def begin(self, model: str, url: str, calls: Collection[CallKey]) -> StoredBatch:
        """Record a batch before anything of it is sent; its calls have one stage."""
        at = now()
        batch_id = self.write(lambda db: _begin(db, model, url, calls, at))
        return StoredBatch(batch_id, url, calls, at)

    def update(
        self,
        batch_id: int,
        *,
        file_id: str | None = None,
        remote_id: str | None = None,
        status: str | None = None,
    ) -> None:
        """Record the endpoint's names of a batch, or its final status."""
        sql = """UPDATE batches SET file_id = coalesce(?, file_id), status = coalesce(?, status),
            remote_id = coalesce(?, remote_id), ended_at = coalesce(ended_at, ?)
            WHERE batch_id = ?"""
        values = (file_id, status, remote_id, status and now(), batch_id)
        self.write(lambda db: db.execute(sql, values))


def _begin(
    db: sqlite3.Connection, model: str, url: str, calls: Collection[CallKey], at: str
) -> int:
    batch_id = insert(db, "batches", {"model": model, "url": url, "created_at": at})
    rows = [
        {"batch_id": batch_id, **asdict(a), "request_hash": request_hash, "nth": nth}
        for a, request_hash, nth in calls
    ]
    insert_all(db, "batch_calls", rows)
    return batch_id


def _unread(db: sqlite3.Connection, branch: Branch) -> list[StoredBatch]:
    rows = db.execute(
        """SELECT t.*, c.* FROM batch_calls c JOIN batches t USING (batch_id)
             JOIN branches b USING (branch_id)
            WHERE b.run_id = :run AND coalesce(t.status, '') <> 'failed'
              AND (c.branch_id IN (SELECT value FROM json_each(:reuses))
                   OR EXISTS (SELECT 1 FROM v_line l WHERE (l.run_id, l.branch_id) =
                     (:run, c.branch_id) AND l.from_step <= c.step AND c.step < l.to_step))
              AND NOT EXISTS (SELECT 1 FROM calls k WHERE (k.branch_id, k.step, k.slot, k.attempt,
                    k.stage, k.request_hash, k.nth) = (c.branch_id, c.step, c.slot, c.attempt,
                    c.stage, c.request_hash, c.nth))
            ORDER BY batch_id""",
        {"run": branch.run, "reuses": json.dumps(branch.reuses)},
    ).fetchall()
    return [_batch(list(of)) for _, of in groupby(rows, lambda row: row["batch_id"])]


def _batch(rows: Sequence[sqlite3.Row]) -> StoredBatch:
    place = ("branch_id", "step", "slot", "attempt", "stage")
    calls = [
        (Address(**{name: row[name] for name in place}), bytes(row["request_hash"]), row["nth"])
        for row in rows
    ]
    own = ("url", "created_at", "file_id", "remote_id", "status")
    return StoredBatch(rows[0]["batch_id"], calls=calls, **{name: rows[0][name] for name in own})


@dataclass(frozen=True, slots=True)
class Awaited:
    """Requests of a run that endpoints are answering in batches."""

    requests: int
    stages: Sequence[str]
    since: str
    """Time at which the oldest of these batches was recorded."""

    @property
    def text(self) -> str:
        """The requests, their stages and the time, for a person."""
        since = f"{to_the_minute(self.since)} UTC"
        return f"{count(self.requests, 'request')} ({', '.join(self.stages)}) since {since}"


def awaited(db: sqlite3.Connection) -> dict[str, Awaited]:
    """Return run → its requests in batches under way."""
    rows = db.execute(
        f"""SELECT run_id, count(*) AS n, min(t.created_at) AS since,
                   json_group_array(DISTINCT stage) AS stages
              FROM batches t JOIN batch_calls USING (batch_id) JOIN branches USING (branch_id)
             WHERE remote_id IS NOT NULL AND {RECENT} GROUP BY run_id"""
    )
    return {
        row["run_id"]: Awaited(row["n"], json.loads(row["stages"]), row["since"]) for row in rows
    }


def mean_seconds(db: sqlite3.Connection, model: str) -> float:
    """Return the mean time that a batch for this model took; 0 if no batch has completed."""
    row = db.execute(
        """SELECT avg(julianday(ended_at) - julianday(created_at)) * 86400.0 FROM batches
            WHERE model = ? AND status = 'completed'""",
        (model,),
    ).fetchone()
    return float(row[0] or 0.0)
