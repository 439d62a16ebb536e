"""Opening the file: private, ours, and a sentence for everything that can be wrong with it."""

import os
import runpy
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.errors import LockedError, StoreError
from grpo_practice.store import Store
from grpo_practice.store import db as db_module
from grpo_practice.store.db import connect, explain


def test_the_file_is_private_and_ours(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "s.db"
    Store(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA application_id").fetchone()[0] == 0x47525043
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()
    Store(path).close()


def test_a_commit_waits_until_it_is_on_the_disk(tmp_path: Path) -> None:
    afresh = runpy.run_path(str(db_module.__file__))["connect"]  # here, the tests' setting holds
    with closing(afresh(tmp_path / "s.db")) as db:
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE mine (x)")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(path)
    assert path.read_bytes() == before


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="newer version"):
        Store(path)


def test_garbage_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"hello" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        Store(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(StoreError, match=r"file/s\.db"):
        Store(path / "s.db")


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("database or disk is full", "disk is full"),
        ("attempt to write a readonly database", "read-only"),
        ("database is locked", "locked by another process"),
        ("database disk image is malformed", "damaged"),
        ("something new", "failed: something new"),
    ],
)
def test_what_sqlite_says_becomes_a_sentence(said: str, meaning: str) -> None:
    told = explain(sqlite3.OperationalError(said), Path("x.db"))
    assert isinstance(told, StoreError)
    assert told.exit_code == 7
    assert meaning in str(told)


def test_reading_cannot_write(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store, pytest.raises(StoreError, match="read-only"):
        store.read(lambda db: db.execute("DELETE FROM runs"))


def test_a_verdict_is_a_reward_in_0_to_1_or_an_error_never_both(tmp_path: Path) -> None:
    """The schema itself refuses a reward of 1.5, neither of the two, and both."""
    Store(tmp_path / "s.db").close()
    db = connect(tmp_path / "s.db")
    db.execute("PRAGMA foreign_keys = OFF")
    for row in ((1, 1, 1.5, None), (1, 1, None, None), (1, 1, 0.5, "both")):
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(
                "INSERT INTO verdicts (rollout_id, judge_id, reward, error) VALUES (?,?,?,?)", row
            )
    db.close()


HOLD = """
import sys, time
from pathlib import Path
from grpo_practice.store.lock import RunLocks
with RunLocks(Path(sys.argv[1])).hold(sys.argv[2]) as mine:
    print(mine, flush=True)
    time.sleep(60)
"""


def test_one_process_writes_a_run_and_the_lock_dies_with_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        other = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), "r"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "src"},
        )
        assert other.stdout is not None
        with other, other.stdout:
            assert other.stdout.readline() == "True\n"
            with (
                pytest.raises(LockedError, match="another process is working on r"),
                store.lock("r"),
            ):
                pass
            with store.lock("another run"):
                pass
            other.kill()
            other.wait()
        with store.lock("r"):
            pass
