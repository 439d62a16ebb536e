"""Batches of requests that an endpoint answers within a day, from before they are sent."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.batched import StoredBatch
from grpo_practice.core.stages import Stage
from grpo_practice.core.text import count
from grpo_practice.store.db import insert, now
from grpo_practice.store.records import Branch

Do = Callable[[Callable[[sqlite3.Connection], Any]], Any]


@dataclass(frozen=True, slots=True)
class SqlBatches:
    """The batches of a run (a `batched.BatchLog`)."""

    read: Do
    write: Do
    branch: Branch
    """Newest branch of the run."""

    def unread(self) -> list[StoredBatch]:
        """Return the batches with requests that the ledger has no answer to, oldest first."""
        found: list[StoredBatch] = self.read(lambda db: _unread(db, self.branch.run))
        return found

    def begin(self, stage: Stage, model: str, url: str, keys: Sequence[str]) -> StoredBatch:
        """Record a batch before anything of it is sent."""
        at = now()
        row = {
            "branch_id": self.branch.id,
            "stage": stage,
            "model": model,
            "url": url,
            "keys": json.dumps(keys),
            "created_at": at,
        }
        batch_id = self.write(lambda db: insert(db, "batches", row))
        return StoredBatch(batch_id, stage, model, url, keys, at)

    def uploaded(self, batch_id: int, file_id: str) -> None:
        """Record the file of a batch."""
        self._set(batch_id, "file_id = ?", file_id)

    def created(self, batch_id: int, remote_id: str) -> None:
        """Record the endpoint's name of a batch."""
        self._set(batch_id, "remote_id = ?", remote_id)

    def ended(self, batch_id: int, status: str) -> None:
        """Record that a batch changes no more."""
        self._set(batch_id, "status = ?, ended_at = ?", status, now())

    def _set(self, batch_id: int, what: str, *values: str) -> None:
        sql = f"UPDATE batches SET {what} WHERE batch_id = ?"
        self.write(lambda db: db.execute(sql, (*values, batch_id)))


def _unread(db: sqlite3.Connection, run: str) -> list[StoredBatch]:
    rows = db.execute(
        """SELECT batch_id AS id, t.* FROM batches t JOIN branches b USING (branch_id)
            WHERE b.run_id = ? AND coalesce(t.status, '') <> 'failed' ORDER BY batch_id""",
        (run,),
    ).fetchall()
    batches = list[StoredBatch]()
    for row in rows:
        keys = [key for key in json.loads(row["keys"]) if not _is_answered(db, key)]
        if keys:
            names = ("id", "stage", "model", "url", "created_at", "file_id", "remote_id")
            batches.append(StoredBatch(**{name: row[name] for name in names}, keys=keys))
    return batches


def _is_answered(db: sqlite3.Connection, key: str) -> bool:
    """Return True if the ledger has the answer to the request with this `custom_id`."""
    *place, stage, request_hash, nth = key.split("_")
    row = db.execute(
        """SELECT EXISTS (SELECT 1 FROM calls WHERE branch_id = ? AND step = ? AND slot = ?
              AND attempt = ? AND stage = ? AND request_hash = ? AND nth = ?)""",
        (*map(int, place), stage, bytes.fromhex(request_hash), int(nth)),
    ).fetchone()
    return bool(row[0])


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
        since = f"{self.since[:10]} {self.since[11:16]} UTC"
        return f"{count(self.requests, 'request')} ({', '.join(self.stages)}) since {since}"


def mean_seconds(db: sqlite3.Connection, model: str) -> float:
    """Return the mean time that a batch for this model took; 0 without one."""
    row = db.execute(
        """SELECT avg(julianday(ended_at) - julianday(created_at)) * 86400.0 FROM batches
            WHERE model = ? AND status = 'completed'""",
        (model,),
    ).fetchone()
    return float(row[0] or 0.0)


def awaited(db: sqlite3.Connection) -> dict[str, Awaited]:
    """Return run → its requests in batches that have not ended."""
    rows = db.execute(
        """SELECT run_id, sum(json_array_length(keys)) AS n, min(t.created_at) AS since,
                  json_group_array(DISTINCT stage) AS stages
             FROM batches t JOIN branches USING (branch_id)
            WHERE ended_at IS NULL AND file_id IS NOT NULL GROUP BY run_id"""
    )
    return {
        row["run_id"]: Awaited(row["n"], json.loads(row["stages"]), row["since"]) for row in rows
    }
