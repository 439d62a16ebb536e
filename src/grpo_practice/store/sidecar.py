"""A second file beside the database, with what lists need that it has no index for.

`NAME.db.see` holds a key of each rollout to sort and filter by, and the words of questions,
answers and experiences. All of it can be made again from the database: it may be deleted at any
time, and one that is damaged, older or of another database is thrown away. It holds words of what
is private, so it is as private as the database, and goes when a run is deleted.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.store.db import SEE
from grpo_practice.store.step_totals import ROLLOUTS

VERSION = 1
"""Version of the form of the file; another one is thrown away."""
APPLICATION_ID = 0x47534545
"""`GSEE`: says whose file it is."""
INDEXED = 8_000
"""Characters of an answer whose words are indexed."""
NO_REWARD = -1.0
"""Key of a rollout without a reward: below all rewards."""

_SCHEMA = """
CREATE TABLE branches (branch_id INTEGER PRIMARY KEY, created_at TEXT NOT NULL);
CREATE TABLE steps (branch_id INTEGER NOT NULL, step INTEGER NOT NULL, state TEXT NOT NULL,
  PRIMARY KEY (branch_id, step)) WITHOUT ROWID;
CREATE TABLE keys (
  branch_id INTEGER NOT NULL,     -- whose step it is: a branch that scores again has its own
  step INTEGER NOT NULL, slot INTEGER NOT NULL, attempt INTEGER NOT NULL,
  rollout_id INTEGER NOT NULL,
  reward REAL NOT NULL,           -- -1: none
  tokens INTEGER NOT NULL,        -- in and out; -1: unknown
  ms INTEGER NOT NULL,            -- that the model took
  PRIMARY KEY (branch_id, step, slot, attempt)) WITHOUT ROWID;
CREATE INDEX keys_reward ON keys (branch_id, reward, step, slot, attempt);
CREATE INDEX keys_tokens ON keys (branch_id, tokens, step, slot, attempt);
CREATE INDEX keys_ms ON keys (branch_id, ms, step, slot, attempt);
CREATE TABLE progress (of TEXT PRIMARY KEY, done INTEGER NOT NULL) WITHOUT ROWID;
-- No texts are kept, and no places of words: a fifth of the size. `detail` allows no phrases.
CREATE VIRTUAL TABLE answers USING fts5(words, content='', detail='none', columnsize=0);
CREATE VIRTUAL TABLE questions USING fts5(words, content='', detail='none', columnsize=0);
CREATE VIRTUAL TABLE experiences USING fts5(words, content='', detail='none', columnsize=0);
"""


def path_of(database: Path) -> Path:
    """Return the file beside a database; links lead to the database's own place."""
    real = Path(os.path.realpath(database))
    return real.with_name(real.name + SEE)


def remove(database: Path) -> None:
    """Delete the file, and what SQLite keeps beside it."""
    path = path_of(database)
    for end in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """State of the file: how many steps are in it, of all that the database has."""

    done: int
    total: int

    @property
    def complete(self) -> bool:
        """Whether all steps are in it, as they were when it was looked at."""
        return self.done >= self.total


class Sidecar:
    """Maker of the file; one at a time works on a database, and any number may read."""

    def __init__(self, database: Path) -> None:
        """Open the file, or make it anew.

        Raises:
            OSError: It cannot be made there.
        """
        self.path = path_of(database)
        self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        with suppress(sqlite3.DatabaseError):
            db = _connected(self.path)
            ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
            if ours and db.execute("PRAGMA user_version").fetchone()[0] == VERSION:
                return db
            db.close()
        return self._made_anew()

    def _made_anew(self) -> sqlite3.Connection:
        remove(self.path.with_name(self.path.name.removesuffix(SEE)))
        db = _connected(self.path)
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        return db

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def refresh(self, source: sqlite3.Connection, *, steps: int = 50) -> Progress:
        """Take in what is new in a database: some of its steps at a call, until it is complete.

        Each step is read by itself, so that no read lasts; it is put in again as long as it is
        not closed, or when it was changed since.
        """
        if self._has_lost_a_branch(source):
            # Numbers of what was deleted are given again: nothing of it may stay.
            self._db.close()
            self._db = self._made_anew()
        states = {(b, s): state for b, s, state in source.execute(_STATES)}
        taken = self._db.execute("SELECT branch_id, step, state FROM steps")
        known = {(b, s): state for b, s, state in taken}
        todo = [place for place, state in states.items() if known.get(place) != state]
        for place in todo[:steps]:
            self._take(source, place, states[place])
        self._take_words(source)
        left = max(len(todo) - steps, 0)
        return Progress(len(states) - left, len(states))

    def _has_lost_a_branch(self, source: sqlite3.Connection) -> bool:
        there = dict(source.execute("SELECT branch_id, created_at FROM branches").fetchall())
        known = self._db.execute("SELECT branch_id, created_at FROM branches").fetchall()
        lost = any(there.get(branch) != created for branch, created in known)
        if not lost:
            with self._writing():
                self._db.executemany("INSERT OR IGNORE INTO branches VALUES (?, ?)", there.items())
        return lost

    def _take(self, source: sqlite3.Connection, place: tuple[int, int], state: str) -> None:
        """Put a step's rollouts in, and the words of those that are scored."""
        branch, step = place
        rows = source.execute(_KEYS, place).fetchall()
        with self._writing():
            taken = self._db.execute(
                "SELECT state FROM steps WHERE branch_id = ? AND step = ?", place
            ).fetchone()
            if taken is not None and taken[0] == state:
                return  # by another process meanwhile: words would be in it twice
            before = self._db.execute(
                "SELECT rollout_id FROM keys WHERE branch_id = ? AND step = ? AND reward >= 0",
                place,
            )
            scored = {rollout for (rollout,) in before}
            self._db.execute("DELETE FROM keys WHERE branch_id = ? AND step = ?", place)
            self._db.executemany(
                "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                ((branch, step, *row[:6]) for row in rows),
            )
            # An answer that has its reward never changes; those of a branch that scores again
            # are in it already.
            new = [row for row in rows if row[3] >= 0 and row[2] not in scored and not row[6]]
            for part in _parts([row[2] for row in new], 200):
                self._db.executemany(
                    "INSERT INTO answers (rowid, words) VALUES (?, ?)",
                    (
                        (rollout, f"{text} {mark(branch)}")
                        for rollout, text in source.execute(_ANSWERS, (json.dumps(part),))
                    ),
                )
            self._db.execute("INSERT OR REPLACE INTO steps VALUES (?, ?, ?)", (*place, state))

    def _take_words(self, source: sqlite3.Connection) -> None:
        """Put in the words of new questions and experiences, which never change."""
        for of, sql in (("questions", _QUESTIONS), ("experiences", _EXPERIENCES)):
            with self._writing():
                row = self._db.execute("SELECT done FROM progress WHERE of = ?", (of,)).fetchone()
                rows = source.execute(sql, (row[0] if row else 0,)).fetchall()
                if not rows:
                    continue
                insert = f"INSERT INTO {of} (rowid, words) VALUES (?, ?)"
                self._db.executemany(insert, map(tuple, rows))
                done = (of, max(row[0] for row in rows))
                self._db.execute("INSERT OR REPLACE INTO progress VALUES (?, ?)", done)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Begin to write before anything is read that the write rests on; undo it all on error."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


TEXT_VERSIONS = 1_000
"""Versions of an experience's text that have a number of their own in the index."""

_STATES = """SELECT branch_id, step,
  status || ' ' || coalesce(closed_at, '') || ' ' || (sums IS NOT NULL) ||
    CASE WHEN closed_at IS NULL THEN ' ' || (
      SELECT count(*) || ' ' || coalesce(max(r.finished_at), '') FROM rollouts r
       WHERE r.branch_id = coalesce(s.played_by, s.branch_id) AND r.step = +s.step) ELSE '' END
  FROM steps s"""
"""Steps with what changes when their rollouts do: a closed one is closed anew then."""

_KEYS = f"""SELECT r.slot, r.attempt, r.rollout_id, coalesce(v.reward, {NO_REWARD}),
  coalesce(r.tokens_in + r.tokens_out, -1), r.model_ms, s.played_by IS NOT NULL
  {ROLLOUTS} WHERE s.branch_id = ? AND s.step = ?"""
_ANSWERS = f"""SELECT rollout_id, substr(response, 1, {INDEXED}) FROM rollout_bodies
  WHERE rollout_id IN (SELECT value FROM json_each(?))"""
_QUESTIONS = f"""SELECT sample_id, substr(question, 1, {INDEXED}) FROM samples
  WHERE sample_id > ? ORDER BY sample_id"""
_EXPERIENCES = f"""SELECT experience_id * {TEXT_VERSIONS} + min(version, {TEXT_VERSIONS - 1}),
  substr(text, 1, {INDEXED}) FROM experience_texts
  WHERE experience_id * {TEXT_VERSIONS} + min(version, {TEXT_VERSIONS - 1}) > ? GROUP BY 1"""


def mark(branch: int) -> str:
    """Return the word that the answers of a branch have, and no text of anybody's is likely to."""
    return f"qzbranch{branch}zq"


def _parts(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (items[i : i + size] for i in range(0, len(items), size))


def _connected(path: Path) -> sqlite3.Connection:
    """Open the file, made private where it is new."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
    # Nothing in it is worth a wait for the disk.
    db.execute("PRAGMA synchronous = OFF")
    return db
