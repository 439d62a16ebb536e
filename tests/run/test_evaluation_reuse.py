"""What keeps an address from being guessed from its hash."""

import sqlite3
from contextlib import closing

from grpo_practice.store.migrate import migrate


def test_each_database_has_a_salt_of_its_own() -> None:
    salts = set()
    for _ in range(2):
        with closing(sqlite3.connect(":memory:")) as db:
            migrate(db)
            salts |= {*db.execute("SELECT salt FROM address_salt")}
    assert len(salts) == 2
