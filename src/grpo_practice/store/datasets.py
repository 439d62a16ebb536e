"""Datasets: named, numbered snapshots of content-addressed samples."""

import json
import sqlite3
from collections.abc import Sequence

from grpo_practice.canonical import digest
from grpo_practice.errors import DataError
from grpo_practice.redact import redactor
from grpo_practice.store.db import Connection, insert, insert_all, now
from grpo_practice.store.records import DatasetRow
from grpo_practice.types import Answer, PlannedStep, Sample

_COLUMNS = "dataset_id, name, revision, sha256, n, origin, created_at"


def add(
    db: sqlite3.Connection, name: str, samples: Sequence[Sample], *, origin: str, replace: bool
) -> tuple[DatasetRow, bool]:
    """Make the dataset hold exactly these samples; return it, and whether it is new.

    The same content again is the same revision.

    Raises:
        DataError: The name holds other samples and `replace` is not set; or there is a secret in
            the name or in a row, which would be stored and sent.
    """
    _refuse_secrets(name, samples)
    sha = digest([s.sha for s in samples])
    newest = find(db, name)
    if newest is not None and newest.sha == sha.hex():
        return newest, False
    if newest is not None and not replace:
        raise DataError(
            f"dataset {name!r} is there already, with other rows ({newest.n}, not these "
            f"{len(samples)})",
            hint="choose another name, or add --replace (old runs keep what they used); an upload"
            " can also --append",
        )
    # Hidden ones count: old runs still refer to their numbers.
    last = db.execute("SELECT max(revision) FROM datasets WHERE name = ?", (name,)).fetchone()[0]
    row = {
        "name": name,
        "revision": (last or 0) + 1,
        "sha256": sha,
        "n": len(samples),
        "origin": origin,
        "created_at": now(),
    }
    dataset_id = insert(db, "datasets", row)
    insert_all(
        db,
        "dataset_rows",
        [
            {"dataset_id": dataset_id, "position": n, "sample_id": _put_sample(db, sample)}
            for n, sample in enumerate(samples)
        ],
    )
    added = find(db, name)
    assert added is not None
    return added, True


def _refuse_secrets(name: str, samples: Sequence[Sample]) -> None:
    hint = "take it out: what is stored here is sent to models"
    if redactor.holds(name):
        raise DataError("the name of the dataset holds a secret, such as an API key", hint=hint)
    for n, s in enumerate(samples, 1):
        if redactor.holds(f"{s.question}\n{s.answer}\n{s.source}\n{s.level}\n{s.meta}"):
            what = f"row {n} of dataset {name!r} holds a secret, such as an API key"
            raise DataError(what, hint=hint)


def _put_sample(db: sqlite3.Connection, s: Sample) -> int:
    sha = bytes.fromhex(s.sha)
    row = {
        "sha256": sha,
        "question": s.question,
        "answer": None if s.answer is None else json.dumps(s.answer, ensure_ascii=False),
        "source": s.source,
        "level": s.level,
        "cluster": s.cluster,
        "meta": json.dumps(dict(s.meta), ensure_ascii=False),
    }
    insert(db, "samples", row, more="ON CONFLICT DO NOTHING")
    # Looked up, since lastrowid means nothing after DO NOTHING.
    row = db.execute("SELECT sample_id FROM samples WHERE sha256 = ?", (sha,)).fetchone()
    return int(row[0])


def find(db: sqlite3.Connection, name: str) -> DatasetRow | None:
    """Return the newest revision under a name that is not hidden; None when there is none."""
    row = db.execute(
        f"""SELECT {_COLUMNS} FROM datasets WHERE name = ? AND hidden_at IS NULL
             ORDER BY revision DESC LIMIT 1""",
        (name,),
    ).fetchone()
    return _dataset(row) if row else None


def by_id(db: sqlite3.Connection, dataset_id: int) -> DatasetRow:
    """Return the dataset of that row, hidden or not."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM datasets WHERE dataset_id = ?", (dataset_id,)
    ).fetchone()
    return _dataset(row)


def get(db: Connection, name: str) -> DatasetRow:
    """Return the newest revision of a dataset.

    Raises:
        DataError: There is none under this name.
    """
    found = find(db, name)
    if found is None:
        from grpo_practice.data.catalog import way_to  # needed only for the error

        names = ", ".join(d.name for d in newest(db)) or "none yet"
        raise DataError(
            f"there is no dataset {name!r} in {db.path} (there: {names})", hint=way_to(name)
        )
    return found


def newest(db: sqlite3.Connection) -> list[DatasetRow]:
    """Return the newest revision of every name that is not hidden, by name."""
    rows = db.execute(
        f"""SELECT {_COLUMNS}, max(revision) FROM datasets WHERE hidden_at IS NULL
             GROUP BY name ORDER BY name"""
    )
    return [_dataset(row) for row in rows]


def hide(db: sqlite3.Connection, name: str) -> int:
    """Hide a name from lists; return how many revisions it had. Runs keep the rows they used."""
    return db.execute(
        "UPDATE datasets SET hidden_at = ? WHERE name = ? AND hidden_at IS NULL", (now(), name)
    ).rowcount


def samples(db: sqlite3.Connection, dataset_id: int, *, most: int = -1) -> list[Sample]:
    """Return the samples of a dataset in order; `most` limits them, -1 does not."""
    rows = db.execute(
        """SELECT s.* FROM dataset_rows r JOIN samples s USING (sample_id)
            WHERE r.dataset_id = ? ORDER BY r.position LIMIT ?""",
        (dataset_id, most),
    )
    return [_sample(row) for row in rows]


def sample_ids(db: sqlite3.Connection, dataset_id: int) -> list[int]:
    """Return the ids of a dataset's samples, in order."""
    rows = db.execute(
        "SELECT sample_id FROM dataset_rows WHERE dataset_id = ? ORDER BY position", (dataset_id,)
    )
    return [row[0] for row in rows]


def answers(db: sqlite3.Connection, dataset_id: int) -> list[tuple[Answer, int]]:
    """Return the different answers of a dataset, each with how many questions have it.

    Questions of one cluster count once: they are one question in several wordings.
    """
    rows = db.execute(
        """SELECT s.answer, count(DISTINCT coalesce(s.cluster, s.sample_id))
             FROM dataset_rows r JOIN samples s USING (sample_id)
            WHERE r.dataset_id = ? AND s.answer IS NOT NULL GROUP BY s.answer""",
        (dataset_id,),
    )
    return [(json.loads(answer), n) for answer, n in rows]


def samples_of(db: sqlite3.Connection, plan: PlannedStep) -> list[Sample]:
    """Return the samples of a planned step. Index = slot."""
    ids = json.dumps([sample_id for sample_id, _ in plan.slots])
    rows = db.execute(
        "SELECT * FROM samples WHERE sample_id IN (SELECT value FROM json_each(?))", (ids,)
    )
    found = {row["sample_id"]: _sample(row) for row in rows}
    return [found[sample_id] for sample_id, _ in plan.slots]


def _sample(row: sqlite3.Row) -> Sample:
    return Sample(
        question=row["question"],
        answer=None if row["answer"] is None else json.loads(row["answer"]),
        source=row["source"],
        level=row["level"],
        cluster=row["cluster"],
        meta=json.loads(row["meta"]),
        id=row["sample_id"],
    )


def _dataset(row: sqlite3.Row) -> DatasetRow:
    return DatasetRow(
        id=row["dataset_id"],
        name=row["name"],
        revision=row["revision"],
        sha=row["sha256"].hex(),
        n=row["n"],
        origin=row["origin"],
        created_at=row["created_at"],
    )
