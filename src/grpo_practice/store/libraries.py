"""Library versions: read, started, and made by closing a step. A tree of immutable rows."""

import sqlite3

from grpo_practice.errors import ConfigError
from grpo_practice.prompts.system import library_sha
from grpo_practice.store.db import now
from grpo_practice.types import Experience, Library


def load(db: sqlite3.Connection, library_id: int | None) -> Library:
    """Return a library version; None is the empty one.

    Raises:
        ConfigError: There is no such version.
    """
    if library_id is None:
        return Library()
    head = db.execute(
        "SELECT next_label FROM libraries WHERE library_id = ?", (library_id,)
    ).fetchone()
    if head is None:
        raise ConfigError(f"there is no library L{library_id}")
    rows = db.execute(
        """SELECT e.label, t.text FROM library_items i
             JOIN experiences e USING (experience_id)
             JOIN experience_texts t ON t.experience_id = i.experience_id AND t.version = i.version
            WHERE i.library_id = ? ORDER BY i.position""",
        (library_id,),
    )
    items = tuple(Experience(label, text) for label, text in rows)
    return Library(items, head[0], id=library_id)


def start(db: sqlite3.Connection, run: str, source: Library | None) -> int:
    """The first library of a run: empty, or a copy of `source` under the same labels."""
    if source is None or not source.experiences:
        return insert(db, run, Library(), cause="empty")
    library_id = insert(db, run, source, cause="import", parent_id=source.id or None)
    origin = {label: eid for label, eid, _ in items(db, source.id)} if source.id else {}
    for position, e in enumerate(source.experiences):
        born = db.execute(
            "INSERT INTO experiences (run_id, label, born_in, origin_id) VALUES (?,?,?,?)",
            (run, e.label, library_id, origin.get(e.label)),
        ).lastrowid
        add_text(db, int(born or 0), 1, e.text, None)
        add_item(db, library_id, position, int(born or 0), 1)
    return library_id


def insert(
    db: sqlite3.Connection,
    run: str,
    library: Library,
    *,
    cause: str,
    parent_id: int | None = None,
    made_in: tuple[int, int] | None = None,
) -> int:
    """The row of a version, without its items. `made_in`: the (branch_id, step) that made it."""
    branch_id, step = made_in or (None, None)
    cursor = db.execute(
        """INSERT INTO libraries (run_id, branch_id, step, parent_id, cause, sha256, n, next_label,
             created_at) VALUES (?,?,?,?,?,?,?,?,?)""",
        (
            run,
            branch_id,
            step,
            parent_id,
            cause,
            library_sha(library),
            len(library),
            library.next_label,
            now(),
        ),
    )
    return int(cursor.lastrowid or 0)


def items(db: sqlite3.Connection, library_id: int) -> list[tuple[int, int, int]]:
    """(label, experience_id, version) of each entry, in order."""
    rows = db.execute(
        """SELECT e.label, i.experience_id, i.version FROM library_items i
             JOIN experiences e USING (experience_id) WHERE i.library_id = ? ORDER BY i.position""",
        (library_id,),
    )
    return [(row[0], row[1], row[2]) for row in rows]


def add_text(
    db: sqlite3.Connection, experience_id: int, version: int, text: str, op_id: int | None
) -> None:
    """One version of an experience's text."""
    db.execute(
        "INSERT INTO experience_texts (experience_id, version, text, op_id) VALUES (?,?,?,?)",
        (experience_id, version, text, op_id),
    )


def add_item(
    db: sqlite3.Connection, library_id: int, position: int, experience_id: int, version: int
) -> None:
    """An entry of a library version."""
    db.execute(
        "INSERT INTO library_items (library_id, position, experience_id, version) VALUES (?,?,?,?)",
        (library_id, position, experience_id, version),
    )
