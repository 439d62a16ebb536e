"""Checks that a file has exactly this program's schema; a query on a foreign view may never end."""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from grpo_practice.core.errors import StoreError
from grpo_practice.store.migrate import migrate
from grpo_practice.store.typed_rows import CHECK_HINT

DIGEST = "08dc274af47f140429b715c488ed435708ecb4d2176158d969b4f67c3b4d64b4"
"""`digest` of the current schema; a matching file needs no full comparison, which takes 15 ms."""

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
    tables = {name for kind, name in ours if kind in ("table", "view")}
    for kind, name in found.keys() - ours.keys():
        on, sql = found[kind, name]
        # A trigger can change rows, and a unique index can reject or replace them.
        acts = kind == "trigger" or (kind == "index" and sql.startswith("CREATE UNIQUE"))
        if acts and on in tables:
            yield f"{kind} {name} on {on} does not belong to this program; it may change data"


def ancestor_faults(db: sqlite3.Connection) -> Iterator[str | None]:
    """Yield None or a fault for each branch and library; each may only refer to older ones."""
    for table, key, to, what in (
        ("branches", "branch_id", "parent_id", "descends from"),
        ("branches", "branch_id", "rebinds", "takes its answers from"),
        ("libraries", "library_id", "parent_id", "descends from"),
    ):
        rows = db.execute(f"SELECT {key}, {to} FROM {table} WHERE {to} IS NOT NULL")
        for child, earlier in rows:
            yield None if earlier < child else f"{key} {child} {what} {earlier}"


def objects(db: sqlite3.Connection) -> Objects:
    """Return the objects of a schema, except for SQLite's own and the record of migrations."""
    rows = db.execute(
        """SELECT type, name, tbl_name, sql FROM sqlite_schema
            WHERE sql IS NOT NULL AND (name NOT GLOB 'sqlite_*' OR type IN ('trigger', 'view'))
              AND tbl_name <> '_sqlite_migrations' ORDER BY type, name"""
    )
    return {(kind, name): (on, sql) for kind, name, on, sql in rows}


def digest(found: Objects) -> str:
    """Return a hash of the objects."""
    return hashlib.sha256(repr(found).encode()).hexdigest()
