"""Pages that are read from the file beside the database: sorted, below a reward, or by words."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grpo_practice.store.open_store import OpenStore
from grpo_practice.store.queries.pages import Place
from grpo_practice.store.records import Branch
from grpo_practice.store.sidecar import VERSION, mark, path_of

Sort = Literal["reward", "tokens", "seconds"]
_COLUMN: dict[Sort, str] = {"reward": "reward", "tokens": "tokens", "seconds": "ms"}
_WORD = re.compile(r"[^\W_]+")
Key = tuple[float, int, int, int]
"""Value that a list is sorted by, step, slot and attempt of a rollout."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Rollouts of a run in an order, those that a filter lets pass."""

    sort: Sort
    descending: bool = False
    """Whether the order is turned round, that of equal ones too: one index serves both."""
    below: float | None = None
    """Reward that they are below; those without one count as below all."""
    after: Key | None = None
    """Key of the last rollout of the page before."""


def opened(database: Path) -> sqlite3.Connection | None:
    """Open the file beside a database to read it; None while there is none that can be read."""
    path = path_of(database)
    if not path.exists():
        return None
    try:
        db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=2.0)
        if db.execute("PRAGMA user_version").fetchone()[0] == VERSION:
            return db
    except sqlite3.Error:
        return None
    db.close()
    return None


@contextmanager
def complete_file(store: OpenStore) -> Iterator[sqlite3.Connection | None]:
    """Open the file beside a store's database; None while it is not made to the end.

    An error of the file, which may be made anew at this moment, ends the block: what was to be read
    in it is then not known.
    """
    db = opened(store.path)
    if db is None:
        yield None
        return
    there = store.read(_count_steps)
    with closing(db):
        try:
            whole = _count_steps(db) >= there
        except sqlite3.Error:
            whole = False
        with suppress(sqlite3.Error):
            yield db if whole else None


def _count_steps(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM steps").fetchone()[0])


def sorted_page(db: sqlite3.Connection, branch: Branch, wish: Wish, n: int) -> list[Key]:
    """Return the keys of the next `n` rollouts on a branch's line, in the order wished for."""
    column, turned = _COLUMN[wish.sort], wish.descending
    order = ", ".join(f"{c}{' DESC' if turned else ''}" for c in (column, *_PLACE))
    found = list[Key]()
    for segment in branch.line:
        where, values = "", list[float | int]()
        if wish.after is not None:
            where += f" AND ({column}, {', '.join(_PLACE)}) {'<' if turned else '>'} (?, ?, ?, ?)"
            values += wish.after
        if wish.below is not None:
            where += " AND reward < ?"
            values.append(wish.below)
        rows = db.execute(
            f"""SELECT {column}, {", ".join(_PLACE)} FROM keys
                 WHERE branch_id = ? AND step >= ? AND step < ?{where}
                 ORDER BY {order} LIMIT ?""",
            (segment.branch_id, segment.first, segment.end, *values, n),
        )
        found += [(key, step, slot, attempt) for key, step, slot, attempt in rows]
    return sorted(found, reverse=turned)[:n]


_PLACE = ("step", "slot", "attempt")


def place_of(key: Key) -> Place:
    """Return the place of a rollout by its key."""
    return Place(*key[1:])


def with_words(
    db: sqlite3.Connection, words: Sequence[str], branches: Sequence[int] | None, after: int, n: int
) -> list[int]:
    """Return the next `n` rollouts of these branches, or of all, whose answers have all the words.

    A word of an answer may go on where a word that is asked for ends.

    `after`: the last rollout of the page before, 0 for the first page.
    """
    parts = [word for text in words for word in _WORD.findall(text)]
    # Beginnings of words; those of one or two letters would be half of all words.
    asked = [f'"{part}"{"*" if len(part) > 2 else ""}' for part in parts]
    if not asked or branches == []:
        return []
    if branches is not None:
        asked.append(f"({' OR '.join(map(mark, branches))})")
    rows = db.execute(
        "SELECT rowid FROM answers WHERE answers MATCH ? AND rowid > ? ORDER BY rowid LIMIT ?",
        (" AND ".join(asked), after, n),
    )
    return [rowid for (rowid,) in rows]


def holders(store: sqlite3.Connection, branch: Branch) -> list[int]:
    """Return the branches that hold the rollouts of a branch's line."""
    found = set[int]()
    for segment in branch.line:
        found |= {
            holder
            for (holder,) in store.execute(
                """SELECT DISTINCT coalesce(played_by, branch_id) FROM steps
                    WHERE branch_id = ? AND step >= ? AND step < ?""",
                (segment.branch_id, segment.first, segment.end),
            )
        }
    return sorted(found)
