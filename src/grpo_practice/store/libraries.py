"""Library versions: a tree of immutable rows, added when a run starts or a step closes."""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import replace

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import Edit, Experience, Library
from grpo_practice.store.db import insert, now


def edited(library: Library, made: Iterable[Edit]) -> Library:
    """Return the library after the edits."""
    # A dict keeps its order, so an update leaves its experience in place and an addition goes to
    # the end.
    texts, next_label = {e.label: e.text for e in library.experiences}, library.next_label
    for edit in made:
        if edit.label is None:
            continue
        if edit.operation.op == "DELETE":
            del texts[edit.label]
        else:
            texts[edit.label] = edit.operation.text or ""
            next_label = max(next_label, edit.label + 1)
    return Library(tuple(Experience(label, text) for label, text in texts.items()), next_label)


def load(db: sqlite3.Connection, library_id: int | None) -> Library:
    """Return a library version (empty for None); raise ConfigError if it does not exist."""
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


def as_stored(db: sqlite3.Connection, library: Library) -> Library:
    """Return the library, without its ID if that ID belongs to another library in this database.

    An ID from another database would assign scores and votes to an unrelated library.
    """
    row = db.execute("SELECT sha256 FROM libraries WHERE library_id = ?", (library.id,)).fetchone()
    here = row is not None and row["sha256"] == library_sha(library)
    return library if here else replace(library, id=0)


def start(db: sqlite3.Connection, run: str, source: Library | None) -> int:
    """Insert the first library of a run: empty, or a copy of `source` under the same labels."""
    if source is None or not source.experiences:
        return add_version(db, run, Library(), cause="empty")
    library_id = add_version(db, run, source, cause="import", parent_id=source.id or None)
    # A library from a file or another database has no experiences here to refer to.
    origin = {label: eid for label, eid, _ in items(db, source.id)} if source.id else {}
    _add_entries(db, run, library_id, source, origin)
    return library_id


def put(db: sqlite3.Connection, run: str, branch_id: int | None, library: Library) -> int:
    """Return the ID of a library that no step made; insert it unless the run has its text.

    `branch_id` is the branch whose agent the library belongs to; None for a library written by
    hand.
    """
    # A resumed command gets here again, and all evaluations of one text belong to one library.
    row = db.execute(
        "SELECT library_id FROM libraries WHERE run_id = ? AND sha256 = ?",
        (run, library_sha(library)),
    ).fetchone()
    if row is not None:
        return int(row[0])
    library_id = add_version(db, run, library, cause="import", made_in=(branch_id, None))
    _add_entries(db, run, library_id, library, {})
    return library_id


def _add_entries(
    db: sqlite3.Connection, run: str, library_id: int, library: Library, origin: Mapping[int, int]
) -> None:
    """Insert a library's experiences as new ones; `origin`: label → the experience it copies."""
    for position, e in enumerate(library.experiences):
        born = add_experience(db, run, e.label, library_id, origin_id=origin.get(e.label))
        add_text(db, born, 1, e.text, None)
        add_item(db, library_id, position, born, 1)


def add_version(
    db: sqlite3.Connection,
    run: str,
    library: Library,
    *,
    cause: str,
    parent_id: int | None = None,
    made_in: tuple[int | None, int | None] | None = None,
) -> int:
    """Insert a version without its items. `made_in`: its branch_id, and the step that made it."""
    branch_id, step = made_in or (None, None)
    row = {
        "run_id": run,
        "branch_id": branch_id,
        "step": step,
        "parent_id": parent_id,
        "cause": cause,
        "sha256": library_sha(library),
        "n": len(library),
        "next_label": library.next_label,
        "created_at": now(),
    }
    return insert(db, "libraries", row)


def items(db: sqlite3.Connection, library_id: int) -> list[tuple[int, int, int]]:
    """Return (label, experience_id, version) of each entry, in order."""
    rows = db.execute(
        """SELECT e.label, i.experience_id, i.version FROM library_items i
             JOIN experiences e USING (experience_id) WHERE i.library_id = ? ORDER BY i.position""",
        (library_id,),
    )
    return [(row[0], row[1], row[2]) for row in rows]


def add_experience(
    db: sqlite3.Connection, run: str, label: int, library_id: int, *, origin_id: int | None = None
) -> int:
    """Insert an experience that is new in this library version; return its ID."""
    row = {"run_id": run, "label": label, "born_in": library_id, "origin_id": origin_id}
    return insert(db, "experiences", row)


def add_text(
    db: sqlite3.Connection, experience_id: int, version: int, text: str, op_id: int | None
) -> None:
    """Insert one version of an experience's text."""
    row = {"experience_id": experience_id, "version": version, "text": text, "op_id": op_id}
    insert(db, "experience_texts", row)


def add_item(
    db: sqlite3.Connection, library_id: int, position: int, experience_id: int, version: int
) -> None:
    """Insert an entry of a library version."""
    row = {"library_id": library_id, "position": position}
    insert(db, "library_items", row | {"experience_id": experience_id, "version": version})
