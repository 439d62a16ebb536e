"""Output files, and the files that they must not replace."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.files import write_file


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "mine.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE paid (answer)")
    return path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine.db", "is a database"),
        ("link.db", "is a database"),
        ("hard.db", "is a database"),
        ("mine.db-wal", "is a part of"),
        ("mine.db-shm", "is a part of"),
        ("mine.db-journal", "is a part of"),
    ],
)
def test_no_text_replaces_a_database(database: Path, name: str, said: str) -> None:
    """`--force` is no permission, because paid answers are nowhere else."""
    before = database.read_bytes()
    database.with_name("link.db").symlink_to(database)
    os.link(database, database.with_name("hard.db"))
    with pytest.raises(ConfigError, match=said):
        write_file(database.with_name(name), "an agent", force=True)
    assert database.read_bytes() == before
    assert {path.name for path in database.parent.iterdir()} == {"mine.db", "link.db", "hard.db"}


def test_a_file_beside_no_database_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "notes-wal"
    file.write_text("old")
    write_file(file, "new", force=True)
    assert file.read_text() == "new"
