"""Opening the file: private, ours, and a sentence for everything that can be wrong with it."""

import runpy
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from grpo_practice.core.errors import LockedError, StoreError
from grpo_practice.store import Store
from grpo_practice.store import db as db_module
from grpo_practice.store.db import connect, explain
from grpo_practice.store.migrate import MIGRATIONS, VERSION
from grpo_practice.store.open_store import Mode


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


@pytest.mark.parametrize(
    ("version", "said", "hint"),
    [
        (99, "newer version", "upgrade grpo-practice"),
        *((n, "development version", "start a new file with --db") for n in (-1, 2, 7, 12)),
    ],
)
@pytest.mark.parametrize("mode", get_args(Mode))
def test_another_schema_is_left_alone(
    tmp_path: Path, mode: Mode, version: int, said: str, hint: str
) -> None:
    path = tmp_path / "s.db"
    Store(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before, files = path.read_bytes(), {*tmp_path.iterdir()}
    with pytest.raises(StoreError, match=said) as refused:
        Store(path, mode)
    assert hint in (refused.value.hint or "")
    assert path.read_bytes() == before
    assert {*tmp_path.iterdir()} == files


def test_a_development_version_that_had_this_schemas_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Store(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE calls DROP COLUMN price")
    with pytest.raises(StoreError, match="table calls has been changed") as refused:
        Store(path)
    assert "development version" in (refused.value.hint or "")


STOP = """
import os, sys
from pathlib import Path
from grpo_practice.store import db, migrate
statements = migrate._statements
def stop(script):
    for n, statement in enumerate([*statements(script), None]):
        if n == int(sys.argv[2]):
            os._exit(9)
        if statement is not None:
            yield statement
migrate._statements = stop
db.prepare(Path(sys.argv[1]))
"""


@pytest.mark.long
@pytest.mark.parametrize("n", [0, 20])
def test_a_database_that_was_killed_while_it_was_made_is_made_later(tmp_path: Path, n: int) -> None:
    path = tmp_path / "s.db"
    done = subprocess.run([sys.executable, "-c", STOP, str(path), str(n)], check=False)
    assert done.returncode == 9
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    Store(path).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)


MANY = """
import os, sys
from pathlib import Path
from grpo_practice.store import Store
ready, go = os.pipe()
started = []
for _ in range(4):
    started.append(os.fork())
    if not started[-1]:
        os.close(go)
        os.read(ready, 1)
        Store(Path(sys.argv[1])).close()
        sys.exit()
os.close(go)
print([os.waitpid(pid, 0)[1] for pid in started])
"""
"""Four processes that have imported all they need, and open the database at once."""


@pytest.mark.long
def test_several_processes_at_once_make_a_new_database(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MANY, str(tmp_path / "new.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[0, 0, 0, 0]\n", "")
    Store(tmp_path / "new.db").close()


def test_every_schema_file_is_among_the_migrations() -> None:
    files = {path.name for path in (Path(db_module.__file__).parent / "schema").glob("*.sql")}
    assert files == {*MIGRATIONS}


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
                "INSERT INTO verdicts (rollout_id, verifier_id, reward, error) VALUES (?,?,?,?)",
                row,
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
