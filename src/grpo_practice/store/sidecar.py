"""A second file beside the database, with what lists need that it has no index for.

`NAME.db.see` holds keys of each rollout to sort and filter by, and the words of its answer. All of
it can be made again from the database: it may be deleted at any time, and one that is damaged,
older or of another database is thrown away. As the database, it is private; when a run is deleted,
the whole file is, since it has words of it.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.store.db import SEE, insert, insert_all
from grpo_practice.store.step_totals import ROLLOUTS

VERSION = 1
"""Version of the form of the file; another one is thrown away."""
APPLICATION_ID = 0x47534545
"""`GSEE`: says whose file it is."""
INDEXED = 8_000
"""Characters of an answer whose words are indexed."""
CACHE_KIB = 128 * 1024
"""Most memory for pages of the file while it is made."""
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
-- With the reward: a filter by it reads the index alone.
CREATE INDEX keys_tokens ON keys (branch_id, tokens, step, slot, attempt, reward);
CREATE INDEX keys_ms ON keys (branch_id, ms, step, slot, attempt, reward);
-- No texts are kept, and no places of words: a fifth of the size. `detail` allows no phrases.
CREATE VIRTUAL TABLE answers USING fts5(words, content='', detail='none', columnsize=0);
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
        self._thrown_away = False
        self._reopen()

    def _reopen(self) -> None:
        self._db = self._open()
        self._file = self.path.stat()

    def _is_in_place(self) -> bool:
        """Return whether the name still leads to the file that is open."""
        try:
            return os.path.samestat(self._file, self.path.stat())
        except FileNotFoundError:
            return False

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
        if not self._is_in_place():
            # Deleted, or made anew by another process: what is written here nobody would read.
            self._db.close()
            self._reopen()
        try:
            return self._take_in(source, steps)
        except sqlite3.DatabaseError as e:
            # Once: where it is the database that is damaged, a new file would end in the same way.
            if self._thrown_away or not _is_damage(e):
                raise
            self._thrown_away = True
            self._throw_away()
            return self._take_in(source, steps)

    def _throw_away(self) -> None:
        self._db.close()
        remove(self.path.with_name(self.path.name.removesuffix(SEE)))
        self._reopen()

    def _take_in(self, source: sqlite3.Connection, steps: int) -> Progress:
        if self._has_lost_a_branch(source):
            # Numbers of what was deleted are given again: nothing of it may stay.
            self._throw_away()
        states = {(b, s): state for b, s, state in source.execute(_STATES)}
        taken = self._db.execute("SELECT branch_id, step, state FROM steps")
        known = {(b, s): state for b, s, state in taken}
        todo = [place for place, state in states.items() if known.get(place) != state]
        # All in one: a commit of a few texts makes a small index, which has to be merged later.
        with self._writing():
            for place in todo[:steps]:
                self._take(source, place, states[place])
        left = max(len(todo) - steps, 0)
        return Progress(len(states) - left, len(states))

    def _has_lost_a_branch(self, source: sqlite3.Connection) -> bool:
        there = dict(source.execute("SELECT branch_id, created_at FROM branches").fetchall())
        known = self._db.execute("SELECT branch_id, created_at FROM branches").fetchall()
        lost = any(there.get(branch) != created for branch, created in known)
        if not lost:
            with self._writing():
                rows = [{"branch_id": i, "created_at": at} for i, at in there.items()]
                insert_all(self._db, "branches", rows, more="ON CONFLICT DO NOTHING")
        return lost

    def _take(self, source: sqlite3.Connection, place: tuple[int, int], state: str) -> None:
        """Put a step's rollouts in, and the words of those that are scored."""
        branch, step = place
        rows = source.execute(_KEYS, place).fetchall()
        taken = self._db.execute(
            "SELECT state FROM steps WHERE branch_id = ? AND step = ?", place
        ).fetchone()
        if taken is not None and taken[0] == state:
            return  # by another process meanwhile: words would be in it twice
        # +reward: else SQLite goes by the index of rewards, through all of the branch each time.
        before = self._db.execute(
            "SELECT rollout_id FROM keys WHERE branch_id = ? AND step = ? AND +reward >= 0",
            place,
        )
        scored = {rollout for (rollout,) in before}
        self._db.execute("DELETE FROM keys WHERE branch_id = ? AND step = ?", place)
        at = {"branch_id": branch, "step": step}
        insert_all(self._db, "keys", [at | {c: row[c] for c in _COLUMNS} for row in rows])
        # An answer that has its reward never changes; those of a branch that scores again
        # are in it already.
        new = [
            row["rollout_id"]
            for row in rows
            if row["reward"] >= 0 and row["rollout_id"] not in scored and not row["again"]
        ]
        for part in _parts(new, 200):
            texts = source.execute(_ANSWERS, (json.dumps(part),))
            words = [{"rowid": i, "words": f"{text} {mark(branch)}"} for i, text in texts]
            insert_all(self._db, "answers", words)
        again = "ON CONFLICT DO UPDATE SET state = excluded.state"
        insert(self._db, "steps", at | {"state": state}, more=again)

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


_STATES = """SELECT branch_id, step,
  status || ' ' || coalesce(closed_at, '') || ' ' || (sums IS NOT NULL) ||
    CASE WHEN status IN ('closed', 'merge_failed') THEN '' ELSE ' ' || (
      SELECT count(*) || ' ' || coalesce(max(r.finished_at), '') FROM rollouts r
       WHERE r.branch_id = coalesce(s.played_by, s.branch_id) AND r.step = +s.step) END
  FROM steps s"""
"""Steps with what changes when their rollouts do: a closed one is closed anew then."""

_COLUMNS = ("slot", "attempt", "rollout_id", "reward", "tokens", "ms")
_KEYS = f"""SELECT r.slot, r.attempt, r.rollout_id, coalesce(v.reward, {NO_REWARD}) AS reward,
  coalesce(r.tokens_in + r.tokens_out, -1) AS tokens, r.model_ms AS ms,
  s.played_by IS NOT NULL AS again
  {ROLLOUTS} WHERE s.branch_id = ? AND s.step = ?"""
_ANSWERS = f"""SELECT rollout_id, substr(response, 1, {INDEXED}) FROM rollout_bodies
  WHERE rollout_id IN (SELECT value FROM json_each(?))"""


def mark(branch: int) -> str:
    """Return the word that the answers of a branch have, and no text of anybody's is likely to."""
    return f"qzbranch{branch}zq"


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # an extended code has its kind there
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _parts(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (items[i : i + size] for i in range(0, len(items), size))


def _connected(path: Path) -> sqlite3.Connection:
    """Open the file, made private where it is new."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
    # Nothing in it is worth a wait for the disk.
    db.execute("PRAGMA synchronous = OFF")
    # Keys are inserted all over their indexes.
    db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return db
