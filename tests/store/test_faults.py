"""What can happen to the files while they are used: a sentence, and nothing shown as saved."""

import errno
import fcntl
import os
import pickle
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typing_extensions import override

from grpo_practice.core.errors import LockedError, StoreError
from grpo_practice.core.events import Event, RolloutFinished
from grpo_practice.store import Store, datasets, invocations
from grpo_practice.store.check import check
from grpo_practice.store.db import connect
from grpo_practice.store.queries import runs
from tests.run.project import Project
from tests.store.helpers import spec, upload


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def wrong(path: Path) -> list[str]:
    return [text for look in check(path) for text in look.wrong]


@pytest.fixture
def locked(path: Path) -> Iterator[int]:
    """Another process (its id) has the run `r` open, and the database locked."""
    with Store(path) as store:
        data, _ = upload(store)
        branch = store.begin(spec(data))
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from grpo_practice.store import invocations\n"
        "from grpo_practice.store.db import connect\n"
        "db = connect(Path(sys.argv[1]))\n"
        "invocations.open_invocation(db, 'r', int(sys.argv[2]), version='1', command='c')\n"
        "db.execute('BEGIN IMMEDIATE')\n"
        "print(flush=True)\n"
        "time.sleep(60)\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(branch.id)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "src"},
    )
    with other:
        assert other.stdout is not None
        other.stdout.readline()
        yield other.pid
        other.kill()


def test_1_63_a_locked_database_is_waited_for_and_its_holder_named(path: Path, locked: int) -> None:
    began = time.monotonic()
    with Store(path, wait_s=0.2) as store:
        with pytest.raises(
            StoreError,
            match=rf"still locked by another process after 0\.2 s.*r \(process {locked} on ",
        ) as e:
            upload(store, name="more")
        assert time.monotonic() - began >= 0.2
        assert e.value.exit_code == 7
        assert [d.name for d in store.read(lambda db: runs.all_runs(db))] == ["r"]


def test_1_63_thirty_seconds_is_how_long_it_waits(path: Path) -> None:
    Store(path).close()
    with closing(connect(path)) as db:
        assert db.execute("PRAGMA busy_timeout").fetchone()[0] == 30_000


FILL = """
import resource, sys
from pathlib import Path
from grpo_practice.core.errors import StoreError
from grpo_practice.store import Store
from tests.store.helpers import upload

with Store(Path(sys.argv[1])) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    saved = 0
    try:
        for n in range(1000):
            upload(store, n=50, name=f"d{n}")
            saved += 1
    except StoreError as e:
        print(saved, e)
"""


@pytest.mark.long
def test_1_63_a_full_disk_is_said_and_what_was_saved_before_is_there(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(path)],
        env={**os.environ, "PYTHONPATH": f"src{os.pathsep}."},
        capture_output=True,
        text=True,
        check=True,
    )
    saved, _, told = done.stdout.partition(" ")
    assert "cannot be read or written" in told or "the disk is full" in told
    with Store(path) as store:
        names = {row[0] for row in store.read(lambda db: db.execute("SELECT name FROM datasets"))}
    assert int(saved) > 1
    assert names == {f"d{n}" for n in range(int(saved))}
    assert wrong(path) == []


Damage = Callable[[Path], None]


def remove(*ends: str) -> Damage:
    def damage(path: Path) -> None:
        for end in ends:
            path.with_name(path.name + end).unlink()

    return damage


def replace(path: Path) -> None:
    os.replace(path.with_name("other.db"), path)  # noqa: PTH105


def begin_another_log(path: Path) -> None:
    remove("-wal", "-shm")(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("SELECT count(*) FROM runs").fetchone()
        path.with_name(path.name + "-wal").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(remove(""), "was removed or replaced .* is lost", id="the database"),
        pytest.param(replace, "was removed or replaced .* is lost", id="another in its place"),
        pytest.param(remove("-wal"), "everything saved is now in the database", id="-wal"),
        pytest.param(remove("-shm"), "everything saved is now in the database", id="-shm"),
        pytest.param(begin_another_log, "may be lost", id="another -wal"),
    ],
)
def test_1_63_files_that_vanish_are_noticed_with_the_next_commit(
    path: Path, damage: Damage, said: str
) -> None:
    Store(path.with_name("other.db")).close()
    store = Store(path)
    upload(store, name="before")
    damage(path)
    with pytest.raises(StoreError, match=said) as e:
        upload(store, name="after")
    assert e.value.exit_code == 7
    with pytest.raises(StoreError, match=said):
        upload(store, name="and nothing more is written")
    with pytest.raises(StoreError, match=said):
        store.close()
    if "everything saved is now" in said:
        with Store(path) as again:
            assert again.read(datasets.get, "before").n == 4
        assert wrong(path) == []


def test_1_63_files_that_vanish_last_are_noticed_at_the_end(path: Path) -> None:
    store = Store(path)
    upload(store)
    path.unlink()
    with pytest.raises(StoreError, match="removed or replaced"):
        store.close()


async def test_1_63_a_run_whose_database_vanishes_stops(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")

    class Vanish(list[Event]):
        @override
        def append(self, event: Event) -> None:
            if isinstance(event, RolloutFinished):
                project.db.unlink(missing_ok=True)

    project.events = Vanish()
    with pytest.raises(StoreError, match=r"everything saved since .* is lost"):
        await project.practise()


async def test_1_63_a_damaged_page_is_no_traceback(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    await project.evaluate(limit=6)
    with closing(sqlite3.connect(project.db)) as db:
        sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'calls'"
        page = db.execute(sql).fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    with project.db.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(StoreError, match="is damaged") as e:
        await project.evaluate()
    assert "db check" in (e.value.hint or "")
    assert wrong(project.db) != []


def test_1_63_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path)


READ_ONLY = """
import sys
from grpo_practice.main import run
sys.exit(run(sys.argv[1:]))
"""


def as_nobody(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command by somebody whom the permissions of files bind, as they do not bind root."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    return subprocess.run(
        [*drop, sys.executable, "-c", READ_ONLY, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path("src").resolve())},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "said"),
    [
        (["p.db"], "is read-only"),
        (["."], "is read-only"),
    ],
    ids=str,
)
async def test_1_63_what_cannot_be_written_is_named(
    tmp_path: Path, closed: list[str], said: str
) -> None:
    project = Project(tmp_path / "p")
    for name in closed:
        place = project.folder / name
        place.chmod(0o500 if place.is_dir() else 0o400)
    done = as_nobody("eval", "--db", "p.db", "--config", "c.yaml", folder=project.folder)
    project.folder.chmod(0o700)
    assert done.returncode == 7, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_1_63_a_folder_without_locks_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with Store(path) as store:
        monkeypatch.setattr(fcntl, "fcntl", refuse)
        with pytest.raises(StoreError, match="No locks available") as e, store.lock("r"):
            pass
        assert "local disk" in (e.value.hint or "")


HOLD = """
import os, pickle, sys
from pathlib import Path
from grpo_practice.store import Store
store = Store(Path(sys.argv[1]))
branch = store.begin(pickle.loads(bytes.fromhex(sys.argv[2])))
with store.lock("r"), store.invocation(branch, "c"):
    print(flush=True)
    sys.stdin.read()
    os._exit(9)
"""


def test_1_64_a_second_process_is_told_who_has_the_run_and_a_dead_one_is_not_waited_for(
    path: Path,
) -> None:
    with Store(path) as store:
        data, _ = upload(store)
        wanted = spec(data)
        store.begin(wanted)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), pickle.dumps(wanted).hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            (since,) = store.read(
                lambda db: db.execute("SELECT started_at FROM invocations").fetchone()
            )
            named = rf"\(process {holder.pid} on .+, since {since.replace('+', '.')}\)"
            with pytest.raises(LockedError, match=named) as e, store.lock("r"):
                pass
            assert e.value.exit_code == 5
            holder.kill()
        with store.lock("r"):
            assert [who.pid for who in store.close_dead("r")] == [holder.pid]
            assert store.close_dead("r") == []
    with closing(sqlite3.connect(path)) as db:
        sql = "SELECT exit_code, reason, ended_at IS NOT NULL FROM invocations"
        assert db.execute(sql).fetchall() == [(None, "died", 1)]


def test_1_64_a_clock_that_was_set_back_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path) as store:
        data, _ = upload(store)
        for name, year in (("first", 2030), ("second", 2020)):
            monkeypatch.setattr(
                invocations, "now", lambda year=year: f"{year}-01-01T00:00:00.000+00:00"
            )
            monkeypatch.setattr(
                "grpo_practice.store.branches.now", lambda year=year: f"{year}-01-01"
            )
            with store.invocation(store.begin(spec(data, name)), "c"):
                pass
        latest = store.read(runs.latest, ["practice"])
        assert latest is not None
        assert latest.name == "second"
        assert [run.name for run in store.read(runs.all_runs)] == ["first", "second"]
