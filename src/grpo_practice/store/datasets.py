"""Datasets: named and numbered snapshots of content-addressed samples."""

import json
import sqlite3
import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from grpo_practice.core.errors import DataError
from grpo_practice.core.hashing import list_digest
from grpo_practice.core.redact import redactor
from grpo_practice.core.types import Answer, Gold, PlannedStep, Sample
from grpo_practice.data.staged_samples import StagedSamples, answer_of, meta_of, sample_of
from grpo_practice.store.db import Connection, insert, insert_all, now
from grpo_practice.store.records import DatasetRow

_COLUMNS = "dataset_id, name, revision, sha256, n, origin, created_at"
CACHE_KB = 1 << 16
"""Cache size of the writing connection while samples are inserted, in KiB."""
_ROWS = """SELECT s.* FROM dataset_rows r JOIN samples s USING (sample_id)
            WHERE r.dataset_id = ? ORDER BY r.position LIMIT ?"""


def add(
    db: sqlite3.Connection,
    name: str,
    found: StagedSamples,
    *,
    origin: str,
    replace: bool,
    after: DatasetRow | None = None,
) -> tuple[DatasetRow, bool]:
    """Make the dataset hold exactly these samples; return it, and whether it is new.

    Unchanged content keeps its revision. The samples of the dataset `after` come first.

    Raises:
        DataError: The name belongs to other samples and `replace` is not set; or the name or a row
            contains a secret, which would be stored and sent to models.
    """
    _refuse_secrets(db, name, found, after)
    # Compare the contents, so that a repeated upload, perhaps from another file, makes no new
    # revision.
    sha, n = list_digest(chain(hashes(db, after.id) if after else (), found.hashes())), len(found)
    n += after.n if after else 0
    newest = find(db, name)
    if newest is not None and newest.sha256 == sha.hex():
        return newest, False
    if newest is not None and not replace:
        raise DataError(
            f"dataset {name!r} already exists with other rows ({newest.n}, not these {n})",
            hint="choose another name, or add --replace (old runs keep the rows they used); an"
            " upload can also use --append",
        )
    # Count hidden revisions, too: old runs still refer to their numbers.
    last = db.execute("SELECT max(revision) FROM datasets WHERE name = ?", (name,)).fetchone()[0]
    row = {
        "name": name,
        "revision": (last or 0) + 1,
        "sha256": sha,
        "n": n,
        "origin": origin,
        "created_at": now(),
    }
    dataset_id = insert(db, "datasets", row)
    if after is not None:
        db.execute(
            """INSERT INTO dataset_rows (dataset_id, position, sample_id)
                SELECT ?, position, sample_id FROM dataset_rows WHERE dataset_id = ?""",
            (dataset_id, after.id),
        )
    _put_samples(db, dataset_id, found, after.n if after else 0)
    added = find(db, name)
    assert added is not None
    return added, True


def _refuse_secrets(
    db: sqlite3.Connection, name: str, found: StagedSamples, after: DatasetRow | None
) -> None:
    if not redactor.known:
        # Nothing to search for, so do not read all rows.
        return
    hint = "remove it, because datasets are stored and sent to models"
    if redactor.holds(name):
        raise DataError("the name of the dataset contains a secret, such as an API key", hint=hint)
    # Without `after`, the id is NULL, which matches no dataset.
    held = db.execute(_ROWS, (after.id if after else None, _most(None)))
    for n, row in enumerate(chain(held, found.rows()), 1):
        texts = (row[name] for name in ("question", "answer", "source", "level", "meta"))
        if redactor.holds("\n".join(filter(None, texts))):
            what = f"row {n} of dataset {name!r} contains a secret, such as an API key"
            raise DataError(what, hint=hint)


def hashes(db: sqlite3.Connection, dataset_id: int) -> Iterator[str]:
    """Yield the hex hash of each sample in order."""
    rows = db.execute(
        """SELECT s.sha256 FROM dataset_rows r JOIN samples s USING (sample_id)
            WHERE r.dataset_id = ? ORDER BY r.position""",
        (dataset_id,),
    )
    return (row[0].hex() for row in rows)


def _put_samples(db: sqlite3.Connection, dataset_id: int, found: StagedSamples, first: int) -> None:
    """Insert new samples, and add all samples to the dataset from position `first`."""
    # Hashes arrive in random order: once their index exceeds SQLite's default cache of 2 MB, each
    # insertion would read and write a separate page.
    (before,) = db.execute("PRAGMA cache_size").fetchone()
    db.execute(f"PRAGMA cache_size = -{CACHE_KB}")
    last = _last_sample(db)
    for rows in found.batches():
        new = insert_all(db, "samples", rows, more="ON CONFLICT DO NOTHING")
        before_these, last = last, _last_sample(db)
        if new == len(rows) == last - before_these:
            # The new ids are consecutive and in order, since the transaction has the write lock.
            db.execute(
                """INSERT INTO dataset_rows (dataset_id, position, sample_id)
                    SELECT ?, ? + sample_id, sample_id FROM samples WHERE sample_id > ?""",
                (dataset_id, first - before_these - 1, before_these),
            )
        else:
            db.executemany(
                """INSERT INTO dataset_rows (dataset_id, position, sample_id)
                    SELECT ?, ?, sample_id FROM samples WHERE sha256 = ?""",
                ((dataset_id, n, row["sha256"]) for n, row in enumerate(rows, first)),
            )
        first += len(rows)
    db.execute(f"PRAGMA cache_size = {before}")


def _last_sample(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(sample_id), 0) FROM samples").fetchone()[0])


def add_apart(
    db: sqlite3.Connection, name: str, found: StagedSamples, *, origin: str
) -> tuple[DatasetRow, bool]:
    """Add a dataset that only this connection can see. See `add`."""
    if find(db, name) is not None:
        return add(db, name, found, origin=origin, replace=False)
    db.execute("PRAGMA query_only = OFF")
    try:
        if db.execute("SELECT count(*) FROM temp.sqlite_schema").fetchone()[0] == 0:
            # Temporary tables hide tables of the same names in every query of this connection.
            for table in ("samples", "datasets", "dataset_rows"):
                (made,) = db.execute(
                    "SELECT sql FROM main.sqlite_schema WHERE name = ?", (table,)
                ).fetchone()
                db.execute(made.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
                db.execute(f"INSERT INTO temp.{table} SELECT * FROM main.{table}")
        return add(db, name, found, origin=origin, replace=False)
    finally:
        db.execute("PRAGMA query_only = ON")


def find(db: sqlite3.Connection, name: str) -> DatasetRow | None:
    """Return the newest revision under a name that is not hidden, or None."""
    row = db.execute(
        f"""SELECT {_COLUMNS} FROM datasets WHERE name = ? AND hidden_at IS NULL
             ORDER BY revision DESC LIMIT 1""",
        (name,),
    ).fetchone()
    return _dataset(row) if row else None


def by_id(db: sqlite3.Connection, dataset_id: int) -> DatasetRow:
    """Return the dataset with this ID, hidden or not."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM datasets WHERE dataset_id = ?", (dataset_id,)
    ).fetchone()
    return _dataset(row)


def get(db: Connection, name: str) -> DatasetRow:
    """Return the newest revision of a dataset; raise DataError if the name does not exist."""
    found = find(db, name)
    if found is None:
        from grpo_practice.data.catalog import way_to  # imported late: only the error needs it

        known = [d.name for d in newest(db)]
        names = ", ".join(known) or "none yet"
        raise DataError(
            f"there is no dataset {name!r} in {db.path} (datasets: {names})",
            hint=way_to(name, known),
        )
    return found


def newest(db: sqlite3.Connection) -> list[DatasetRow]:
    """Return the newest revision of every name that is not hidden, sorted by name."""
    # SQLite takes the other columns from the row with the largest revision; standard SQL would not.
    rows = db.execute(
        f"""SELECT {_COLUMNS}, max(revision) FROM datasets WHERE hidden_at IS NULL
             GROUP BY name ORDER BY name"""
    )
    return [_dataset(row) for row in rows]


def hide(db: sqlite3.Connection, name: str) -> int:
    """Hide a name from lists; return its number of revisions. Runs keep the rows they used."""
    return db.execute(
        "UPDATE datasets SET hidden_at = ? WHERE name = ? AND hidden_at IS NULL", (now(), name)
    ).rowcount


def samples(db: sqlite3.Connection, dataset_id: int, *, most: int | None = None) -> list[Sample]:
    """Return the samples of a dataset in order, or the first `most` of them."""
    return list(each(db, dataset_id, most=most))


def each(db: sqlite3.Connection, dataset_id: int, *, most: int | None = None) -> Iterator[Sample]:
    """Yield the samples that `samples` returns, for datasets that may not fit into memory."""
    return map(_sample, db.execute(_ROWS, (dataset_id, _most(most))))


def golds(
    db: sqlite3.Connection, dataset_id: int, *, first: int = 0, end: int | None = None
) -> Iterator[Gold]:
    """Yield the answer and the meta of each sample, from position `first` up to `end`."""
    rows = db.execute(
        """SELECT s.answer, s.meta FROM dataset_rows r JOIN samples s USING (sample_id)
            WHERE r.dataset_id = ? AND r.position >= ? AND r.position < ? ORDER BY r.position""",
        (dataset_id, first, _most(end)),
    )
    for answer, meta in rows:
        yield Gold(answer_of(answer), meta_of(meta))


def golds_at(db: sqlite3.Connection, dataset_id: int, positions: Iterable[int]) -> list[Gold]:
    """Return the answer and the meta of the samples at these positions; skip missing positions."""
    # Look up each one by its primary key, because the callers want only a few rows of a large
    # dataset.
    return [gold for at in positions for gold in golds(db, dataset_id, first=at, end=at + 1)]


def _most(n: int | None) -> int:
    """Return a limit that SQLite accepts: its largest integer for None and for larger numbers."""
    return sys.maxsize if n is None else min(n, sys.maxsize)


def questions(db: sqlite3.Connection, dataset_id: int) -> Iterator[tuple[str, str | None]]:
    """Yield the question of each sample in order, with its answer as JSON."""
    rows = db.execute(
        """SELECT s.question, s.answer FROM dataset_rows r JOIN samples s USING (sample_id)
            WHERE r.dataset_id = ? ORDER BY r.position""",
        (dataset_id,),
    )
    return ((row[0], row[1]) for row in rows)


def sample_ids(db: sqlite3.Connection, dataset_id: int, *, most: int | None = None) -> list[int]:
    """Return the IDs of a dataset's samples in order, or of the first `most`."""
    rows = db.execute(
        "SELECT sample_id FROM dataset_rows WHERE dataset_id = ? ORDER BY position LIMIT ?",
        (dataset_id, _most(most)),
    )
    return [row[0] for row in rows]


def missing(db: sqlite3.Connection, dataset_id: int, ids: Collection[int]) -> set[int]:
    """Return the given samples that are not in the dataset."""
    left = set(ids)
    rows = db.execute("SELECT sample_id FROM dataset_rows WHERE dataset_id = ?", (dataset_id,))
    left.difference_update(row[0] for row in rows)
    return left


def answers(db: sqlite3.Connection, dataset_id: int) -> Iterator[tuple[Answer, int]]:
    """Yield each distinct answer in a dataset with the number of questions that have it.

    The questions in a cluster count once, since they are one question in several wordings.
    """
    rows = db.execute(
        """SELECT s.answer, count(DISTINCT coalesce(s.cluster, s.sample_id))
             FROM dataset_rows r JOIN samples s USING (sample_id)
            WHERE r.dataset_id = ? AND s.answer IS NOT NULL GROUP BY s.answer""",
        (dataset_id,),
    )
    return ((answer_of(answer), n) for answer, n in rows)


def samples_of(db: sqlite3.Connection, plan: PlannedStep) -> list[Sample]:
    """Return the samples of a planned step. Index = slot."""
    ids = json.dumps([sample_id for sample_id, _ in plan.slots])
    rows = db.execute(
        "SELECT * FROM samples WHERE sample_id IN (SELECT value FROM json_each(?))", (ids,)
    )
    found = {row["sample_id"]: _sample(row) for row in rows}
    return [found[sample_id] for sample_id, _ in plan.slots]


def _sample(row: sqlite3.Row) -> Sample:
    return sample_of(row, row["sample_id"])


def _dataset(row: sqlite3.Row) -> DatasetRow:
    return DatasetRow(
        id=row["dataset_id"],
        name=row["name"],
        revision=row["revision"],
        sha256=row["sha256"].hex(),
        n=row["n"],
        origin=row["origin"],
        created_at=row["created_at"],
    )
