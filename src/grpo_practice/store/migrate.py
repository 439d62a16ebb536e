"""From an empty file, or an older version's, to this version's schema.

Apart from `db`, which needs it once in a database's life: what it imports takes long.
"""

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources

from sqlite_utils import Database, Migrations

from grpo_practice.store.db import APPLICATION_ID, MIGRATIONS, VERSION


def migrate(db: sqlite3.Connection, to: int = VERSION) -> None:
    """Migrate to a version; the caller's transaction makes it all of it or nothing."""
    migrations = Migrations("grpo-practice")
    for version, name in enumerate(MIGRATIONS[:to], 1):
        # The name is on record in databases: it never changes.
        step: Callable[[Database], None] = partial(_run, version=version)
        migrations(name=f"{version}_{name}")(step)
    migrations.apply(Database(db))


def _run(db: Database, version: int) -> None:
    script = resources.files(__package__).joinpath("schema", f"{version}.sql").read_text("utf-8")
    for statement in _statements(script):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {version}")


def _statements(script: str) -> Iterator[str]:
    """Yield the statements one by one: `executescript` would commit the transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
