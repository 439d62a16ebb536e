"""From an empty file, or an older version's, to this version's schema.

Apart from `db`, which needs it once in a database's life: what it imports takes long.
"""

import sqlite3
from collections.abc import Iterator
from importlib import resources

from sqlite_utils import Database, Migrations

from grpo_practice.store.db import APPLICATION_ID

migrations = Migrations("grpo-practice")


@migrations(name="1_initial")
def _initial(db: Database) -> None:
    _run(db, 1)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


@migrations(name="2_prices")
def _prices(db: Database) -> None:
    _run(db, 2)


@migrations(name="3_waves")
def _waves(db: Database) -> None:
    _run(db, 3)


@migrations(name="4_domains")
def _domains(db: Database) -> None:
    _run(db, 4)


@migrations(name="5_votes")
def _votes(db: Database) -> None:
    _run(db, 5)


def migrate(db: sqlite3.Connection) -> None:
    """The schema is this version's. The caller's transaction makes it all of it or nothing."""
    migrations.apply(Database(db))


def _run(db: Database, version: int) -> None:
    script = resources.files(__package__).joinpath("schema", f"{version}.sql").read_text("utf-8")
    for statement in _statements(script):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {version}")


def _statements(script: str) -> Iterator[str]:
    """The statements one by one: `executescript` would commit the migration's transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
