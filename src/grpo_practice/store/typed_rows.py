"""Type checks of values in rows as they are read, since a foreign table may not be STRICT."""

import sqlite3
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from grpo_practice.core.errors import StoreError
from grpo_practice.core.text import brief
from grpo_practice.store.migrate import our_tables

CHECK_HINT = "to see the details: grpo-practice db check"
_TYPES: dict[str, tuple[type, ...]] = {
    "INTEGER": (int,),
    "REAL": (float, int),
    "TEXT": (str,),
    "BLOB": (bytes,),
}
_NAMES = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}
_COLUMNS = """SELECT t.name, c.name, c.type, c.pk FROM sqlite_schema t, pragma_table_info(t.name) c
    WHERE t.type = 'table'"""

RowMaker = Callable[[sqlite3.Cursor, tuple[Any, ...]], sqlite3.Row]


def our_columns(db: sqlite3.Connection) -> list[tuple[str, str, str, int]]:
    """Return table, name, declared type and position in the key of each column of our tables."""
    # Not `db.execute`, which needs these columns for its own checks.
    columns = sqlite3.Connection.execute(db, _COLUMNS).fetchall()
    return [(table, *more) for table, *more in columns if table in our_tables()]


class TypedConnection(sqlite3.Connection):
    """A connection that checks the values in rows against the declared types of their columns.

    Columns are recognised by name, and values of other expressions are not checked. Do not give an
    expression the name of a column that has a different type: each such value costs a search of the
    tables.
    """

    path: Path
    """Path of the file, for messages."""

    def typed(self, cursor: sqlite3.Cursor) -> sqlite3.Cursor:
        """Make the cursor of a statement raise StoreError for a value of a wrong type."""
        if cursor.description:
            names = tuple(column[0] for column in cursor.description)
            # Kept by columns, not by statement: many statements return the same columns.
            if names not in self._makers:
                self._makers[names] = self._maker(names)
            cursor.row_factory = self._makers[names]
        return cursor

    @cached_property
    def _makers(self) -> dict[tuple[str, ...], RowMaker]:
        return {}

    @cached_property
    def _kinds(self) -> dict[str, tuple[type, ...]]:
        """Column name → its types in Python; of both columns, if two tables share the name."""
        kinds = dict[str, tuple[type, ...]]()
        for _, name, declared, _ in our_columns(self):
            kinds[name] = kinds.get(name, (type(None),)) + _TYPES.get(declared, ())
        return kinds

    def _maker(self, names: tuple[str, ...]) -> RowMaker:
        right = set[tuple[type, ...]]()

        def made(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> sqlite3.Row:
            types = (*map(type, values),)
            if types not in right:  # few combinations occur, so most rows skip the check
                kinds = self._kinds  # read here: many connections only write
                for name, found in zip(names, types, strict=True):
                    if name in kinds and found not in kinds[name]:
                        self._check_stored(name, found)
                right.add(types)
            return sqlite3.Row(cursor, values)

        return made

    def _check_stored(self, name: str, found: type) -> None:
        """Raise StoreError if a column of this name contains a value of this type."""
        columns = our_columns(self)
        for table in [of for of, column, *_ in columns if column == name]:
            keys = [key for of, key, _, pk in columns if of == table and pk] or ["rowid"]
            # Not `self.execute`, whose check of this row could start the same search again.
            row = sqlite3.Connection.execute(
                self,
                f"SELECT {', '.join(keys)} FROM {table} WHERE typeof({name}) = ? LIMIT 1",
                (_NAMES[found].lower(),),
            ).fetchone()
            if row:
                key = ", ".join(f"{k} {brief(str(v), 40)}" for k, v in zip(keys, row, strict=True))
                raise StoreError(
                    f"the database {self.path} is damaged: {table}.{name} of {key} is"
                    f" {_NAMES[found]}",
                    hint=CHECK_HINT,
                )
