"""Checks that a file has exactly this program's schema; a query on a foreign view may never end."""

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from grpo_practice.core.errors import StoreError
from grpo_practice.store.migrate import migrate
from grpo_practice.store.typed_rows import CHECK_HINT

DIGEST = "bb32ea634825b28b5ef53b9a21bb16b49374f9fdf63d7c3a307498d584e812f9"
"""`digest` of the current schema; a matching file needs no full comparison, which takes 15 ms."""

_RECORD = "_sqlite_migrations"
"""Table in which `migrate` records its scripts."""
Link = tuple[str, str, str, str]
"""Rows, their key, the column that leads to an older row, and the verb between the two."""
LINKS: Sequence[Link] = (
    ("branches", "branch_id", "parent_id", "descends from"),
    ("branches", "branch_id", "rebinds", "takes its answers from"),
    ("libraries", "library_id", "parent_id", "descends from"),
)
"""References that queries follow to the end."""
LATER_LINKS: Sequence[Link] = (
    ("calls", "call_id", "prev_call_id", "continues"),
    ("experiences", "experience_id", "origin_id", "comes from"),
    ("operations", "op_id", "decides", "decides on"),
    ("operations, json_each(from_ops)", "op_id", "value", "was merged from"),
    ("steps", "branch_id", "played_by", "was played by"),
)
"""References that a check of every opened file would read too many rows for."""

Objects = dict[tuple[str, str], tuple[str, str]]
"""(kind, name) → (table, SQL) of each table, view, index and trigger."""


def check_shape(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError unless the schema is ours and no branch or library descends from itself.

    Call this before any other query, because queries evaluate views and follow ancestors to the
    end.
    """
    found = objects(db)
    faults = () if digest(found) == DIGEST else schema_faults(found)
    for fault in (*faults, *ancestor_faults(db)):
        if fault is not None:
            raise StoreError(
                f"the database {path} is not a valid database of this program: {fault}",
                hint=f"{CHECK_HINT}; a development version's file opens only with that version",
            )


def schema_faults(found: Objects) -> Iterator[str | None]:
    """Yield None or a fault for each object of our schema, and for foreign triggers.

    Foreign tables, views and plain indexes are accepted, since they do not change stored data.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        migrate(made)
        ours = objects(made)
    for (kind, name), (_, sql) in ours.items():
        if (kind, name) not in found:
            yield f"{kind} {name} is missing"
        else:
            yield None if found[kind, name][1] == sql else f"{kind} {name} has been changed"
    tables = {name.lower() for kind, name in ours if kind in ("table", "view")} | {_RECORD}
    for kind, name in found.keys() - ours.keys():
        on, sql = found[kind, name]
        # A trigger can change rows, and a unique index can reject or replace them. Somebody who
        # edits the schema can store any table beside their SQL, so the SQL itself counts.
        unique = kind == "index" and "unique" in sql.lower()
        meant = {on.lower(), *re.findall(r"\w+", sql.lower())}
        if kind == "trigger" or name.lower() == _RECORD or (unique and meant & tables):
            yield f"{kind} {name} on {on} does not belong to this program; it may change data"


def ancestor_faults(db: sqlite3.Connection, links: Sequence[Link] = LINKS) -> Iterator[str | None]:
    """Yield None or a fault for each reference; each may only lead to an older row."""
    for rows, key, to, what in links:
        for child, earlier in db.execute(f"SELECT {key}, {to} FROM {rows} WHERE {to} NOTNULL"):
            yield None if earlier < child else f"{key} {child} {what} {earlier}"


def objects(db: sqlite3.Connection) -> Objects:
    """Return the objects of a schema, except for SQLite's own and the record of migrations."""
    rows = db.execute(
        """SELECT type, name, tbl_name, sql FROM sqlite_schema
            WHERE sql IS NOT NULL AND NOT (type = 'table' AND name GLOB 'sqlite_*')
              AND (type, name) NOT IN (VALUES ('table', :record), ('index', :its_index))
            ORDER BY type, name""",
        {"record": _RECORD, "its_index": f"idx_{_RECORD}_migration_set_name"},
    )
    return {(kind, name): (on, sql) for kind, name, on, sql in rows}


def digest(found: Objects) -> str:
    """Return a hash of the objects."""
    return hashlib.sha256(repr(found).encode()).hexdigest()
