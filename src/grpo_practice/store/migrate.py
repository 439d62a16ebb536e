"""The schema of the database, and the scripts that create it."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID = 0x47525043
"""`GRPC`: marks the file as a database of this program."""
MIGRATIONS = ("1.sql",)
"""Scripts in `schema/`, each from one version to the next; the first starts with an empty file."""
VERSION = len(MIGRATIONS)


@cache
def our_tables() -> frozenset[str]:
    """Return the names of the tables that the scripts create; a file may contain others."""
    scripts = "".join(map(_script, MIGRATIONS))
    return frozenset(re.findall(r"^CREATE TABLE (\w+)", scripts, re.MULTILINE))


def migrate(db: sqlite3.Connection) -> None:
    """Upgrade the database to this version's schema, all or nothing in the caller's transaction."""
    from sqlite_utils import Database, Migrations  # imported late: slow, and needed once per file

    migrations = Migrations("grpo-practice")
    for name in MIGRATIONS:
        # Never rename a script: databases record the names of the scripts that made them.
        step: Callable[[Database], None] = partial(_run, name=name)
        migrations(name=name)(step)
    migrations.apply(Database(db))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def make_tables(db: sqlite3.Connection) -> None:
    """Create this version's tables in a temporary database, which needs no record of scripts."""
    for name in MIGRATIONS:
        _run(db, name)


def _run(db: "Database | sqlite3.Connection", name: str) -> None:
    for statement in _statements(_script(name)):
        db.execute(statement)


def _script(name: str) -> str:
    return Path(__file__).with_name("schema").joinpath(name).read_text("utf-8")


def _statements(script: str) -> Iterator[str]:
    """Yield the statements one by one, because `executescript` would commit the transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        # Not split at semicolons: triggers contain them.
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
