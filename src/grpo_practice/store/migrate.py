"""The schema of the database, and how a file gets it."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID = 0x47525043
"""`GRPC`: says whose file it is."""
MIGRATIONS = ("1.sql",)
"""Scripts in `schema/`, each from one version to the next; the first one starts from nothing."""
VERSION = len(MIGRATIONS)


@cache
def our_tables() -> frozenset[str]:
    """Return the names of the tables that the scripts make: a file may hold others, too."""
    scripts = "".join(map(_script, MIGRATIONS))
    return frozenset(re.findall(r"^CREATE TABLE (\w+)", scripts, re.MULTILINE))


def migrate(db: sqlite3.Connection) -> None:
    """Give the database this version's schema; the caller's transaction makes it all or nothing."""
    from sqlite_utils import Database, Migrations  # slow to import; a file needs it once

    migrations = Migrations("grpo-practice")
    for name in MIGRATIONS:
        # Databases keep the names of the scripts that made them: a name never changes.
        step: Callable[[Database], None] = partial(_run, name=name)
        migrations(name=name)(step)
    migrations.apply(Database(db))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def make_tables(db: sqlite3.Connection) -> None:
    """Give a database that is not kept this version's tables: it needs no record of scripts."""
    for name in MIGRATIONS:
        _run(db, name)


def _run(db: "Database | sqlite3.Connection", name: str) -> None:
    for statement in _statements(_script(name)):
        db.execute(statement)


def _script(name: str) -> str:
    return Path(__file__).with_name("schema").joinpath(name).read_text("utf-8")


def _statements(script: str) -> Iterator[str]:
    """Yield the statements one by one: `executescript` would commit the transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
