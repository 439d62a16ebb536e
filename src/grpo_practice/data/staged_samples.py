"""Samples on their way from a source to the store, in a private temporary file on disk."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, takewhile
from types import TracebackType
from typing import Any, Self

from grpo_practice.core.hashing import canon, text_sha
from grpo_practice.core.types import Answer, Sample

ROWS_IN_MEMORY = 100
"""Maximum number of rows in memory."""
_JSON = json.JSONEncoder(ensure_ascii=False)
_value = json.JSONDecoder().raw_decode

_TABLES = """
CREATE TABLE rows (
  position INTEGER PRIMARY KEY, key BLOB, place TEXT,
  sha256 BLOB, question TEXT, answer TEXT, source TEXT, level TEXT, cluster TEXT, meta TEXT);
CREATE TABLE held (position INTEGER PRIMARY KEY, key BLOB, answer TEXT);
"""
COLUMNS = ("sha256", "question", "answer", "source", "level", "cluster", "meta")
"""Columns of the store's table `samples`."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A sample that repeats the question of an earlier one."""

    place: str
    earlier: str
    """Place of the earlier sample."""
    contradicts: bool
    """Whether its answer differs from the earlier answer."""


class StagedSamples:
    """Ordered samples on disk; a million of them take a few megabytes of memory.

    A context manager. The file has no name and disappears at the end of the block or the process.
    """

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        # The store's writer thread reads this while the thread that filled it waits.
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        # Safe, because nobody needs this file after a crash.
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.executescript(_TABLES)
        # Never committed: the file is private to this object and ends with it.
        self._db.execute("BEGIN")
        self._waiting = list[tuple[Any, ...]]()
        for sample in samples:
            self.add(sample)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.close()

    def __len__(self) -> int:
        return int(self._query("SELECT count(*) FROM rows").fetchone()[0])

    def add(self, sample: Sample, place: str = "") -> None:
        """Append a sample; `place` is its position in the source."""
        self._waiting.append((_key(sample.question), place, *columns_of(sample)))
        if len(self._waiting) >= ROWS_IN_MEMORY:
            self._write()

    def clear(self) -> None:
        """Remove all samples."""
        self._waiting.clear()
        self._db.execute("DELETE FROM rows")

    def _write(self) -> None:
        marks = ", ".join("?" * (2 + len(COLUMNS)))
        self._db.executemany(
            f"INSERT INTO rows (key, place, {', '.join(COLUMNS)}) VALUES ({marks})", self._waiting
        )
        self._waiting.clear()

    def _query(self, sql: str) -> sqlite3.Cursor:
        if self._waiting:
            self._write()
        return self._db.execute(sql)

    def answered(self) -> bool:
        """Return whether any sample has an answer."""
        found = self._query("SELECT EXISTS (SELECT 1 FROM rows WHERE answer IS NOT NULL)")
        return bool(found.fetchone()[0])

    def unclustered(self) -> int:
        """Count the samples without a cluster."""
        found = self._query("SELECT count(*) FROM rows WHERE cluster IS NULL")
        return int(found.fetchone()[0])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each sample as a row of the store's table `samples`."""
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows in batches."""
        found = self._query(f"SELECT {', '.join(COLUMNS)} FROM rows ORDER BY position")
        while rows := found.fetchmany(ROWS_IN_MEMORY):
            yield [dict(zip(COLUMNS, row, strict=True)) for row in rows]

    def hashes(self) -> Iterator[str]:
        """Yield each sample's hash in hex."""
        return (row[0].hex() for row in self._query("SELECT sha256 FROM rows ORDER BY position"))

    def __iter__(self) -> Iterator[Sample]:
        return map(sample_of, self.rows())

    def repeats(self) -> Iterator[Repeat]:
        """Yield, in order, the samples that repeat an earlier question, ignoring whitespace."""
        self._find_repeats()
        found = self._query(
            """SELECT r.place, r.answer, f.place, f.answer FROM repeats
                 JOIN rows r ON r.position = repeats.position
                 JOIN rows f ON f.position = repeats.first ORDER BY repeats.position"""
        )
        for place, answer, earlier, first in found:
            yield Repeat(place, earlier, _differ(answer, first))

    def leave_repeats_out(self) -> int:
        """Remove samples that repeat a question, ignoring whitespace; return their number."""
        self._find_repeats()
        return self._query(
            "DELETE FROM rows WHERE position IN (SELECT position FROM repeats)"
        ).rowcount

    def alike(self, length: int) -> tuple[int, int]:
        """Count samples that begin like a different question, and the beginnings they share.

        A beginning is the first `length` characters after the prefix that all samples have in
        common. Samples with a cluster are ignored.
        """
        # The prefix that the first and the last text in order share is the prefix of all texts.
        low, high = self._query("SELECT min(question), max(question) FROM rows").fetchone()
        pairs = zip(low or "", high or "", strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        found = self._query(
            f"""SELECT total(n), count(*) FROM (
                  SELECT count(*) AS n FROM rows
                   WHERE cluster IS NULL AND length(question) >= {common + length}
                   GROUP BY substr(question, {common + 1}, {length})
                  HAVING count(DISTINCT key) > 1)"""
        )
        samples, beginnings = found.fetchone()
        return int(samples), beginnings

    def _find_repeats(self) -> None:
        # SQLite sorts the index on disk, whereas a Python set of keys would fill the memory.
        self._query("CREATE INDEX IF NOT EXISTS rows_key ON rows (key, position)")
        self._query("DROP TABLE IF EXISTS repeats")
        self._query(
            """CREATE TABLE repeats AS SELECT position, first FROM
                 (SELECT position, min(position) OVER (PARTITION BY key) AS first FROM rows)
                WHERE first < position"""
        )

    def leave_out(self, rows: Collection[int]) -> list[str]:
        """Remove rows by number, counted from 1; return their places, or else their numbers."""
        found = self._query("SELECT position, place FROM rows ORDER BY position")
        wanted = [(at, place or str(n)) for n, (at, place) in enumerate(found, 1) if n in rows]
        self._db.executemany("DELETE FROM rows WHERE position = ?", [(at,) for at, _ in wanted])
        return [place for _, place in wanted]

    def hold(self, questions: Iterable[tuple[str, str | None]]) -> None:
        """Register the questions stored under the dataset's name, with their answers as JSON."""
        rows = ((_key(question), answer) for question, answer in questions)
        self._db.executemany("INSERT INTO held (key, answer) VALUES (?, ?)", rows)

    def held_again(self) -> tuple[int, int]:
        """Count samples whose question is already stored, and those with a different answer."""
        self._query("CREATE INDEX IF NOT EXISTS rows_key ON rows (key, position)")
        self._query("CREATE INDEX IF NOT EXISTS held_key ON held (key, position)")
        again = contradicting = 0
        # The last stored answer to a question counts. Both indexes are scanned in order, so that
        # only the answers of repeated questions need random access.
        for answer, held in self._query(
            """SELECT r.answer, h.answer FROM (SELECT key, max(position) AS last FROM held
                 GROUP BY key) AS kept JOIN rows r ON r.key = kept.key
                 JOIN held h ON h.position = kept.last"""
        ):
            again += 1
            contradicting += _differ(answer, held)
        return again, contradicting

    def leave_held_out(self) -> None:
        """Remove the samples whose question is already stored."""
        self._query("DELETE FROM rows WHERE key IN (SELECT key FROM held)")


def columns_of(sample: Sample) -> tuple[Any, ...]:
    """Return the values of `COLUMNS`."""
    return (
        bytes.fromhex(sample.sha),
        sample.question,
        None if sample.answer is None else _JSON.encode(sample.answer),
        sample.source,
        sample.level,
        sample.cluster,
        _JSON.encode(dict(sample.meta)) if sample.meta else "{}",
    )


def sample_of(row: Any, sample_id: int = 0) -> Sample:
    """Convert a row of the table `samples` to a sample."""
    return Sample(
        question=row["question"],
        answer=answer_of(row["answer"]),
        source=row["source"],
        level=row["level"],
        cluster=row["cluster"],
        meta=meta_of(row["meta"]),
        id=sample_id,
    )


def answer_of(text: str | None) -> Answer:
    """Decode a row's answer from JSON."""
    # Twice as fast as json.loads, which matters for a million rows.
    return None if text is None else _value(text)[0]


def meta_of(text: str) -> dict[str, Any]:
    """Decode a row's meta from JSON."""
    return {} if text == "{}" else json.loads(text)


def _key(question: str) -> bytes:
    """Hash the question, ignoring differences in whitespace."""
    # 128 bits suffice to tell a million questions apart, and halve the index.
    return text_sha(" ".join(question.split()))[:16]


def _differ(one: str | None, other: str | None) -> bool:
    """Return whether two JSON-encoded answers have different values."""
    if one == other:
        return False
    return one is None or other is None or canon(json.loads(one)) != canon(json.loads(other))
