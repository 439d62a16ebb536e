"""The lock on a run is the file's: no other name of it gets round it, and no file to be deleted."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from grpo_practice.core.errors import LockedError
from grpo_practice.store import Store, lock

HOLD = """
import sys
from pathlib import Path
from grpo_practice.store import Store
with Store(Path(sys.argv[1])) as store, store.lock("r"):
    store.flush()
    print("held", flush=True)
    sys.stdin.read()
"""


def other(path: Path) -> "subprocess.Popen[str]":
    """A process that takes the run `r`, and holds it until its stdin is closed."""
    command = [sys.executable, "-c", HOLD, str(path)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def held(path: Path) -> "Iterator[subprocess.Popen[str]]":
    """The block runs while another process holds the run `r` of this database."""
    process = other(path)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def refused(path: Path) -> str:
    """What a process says that is kept from the run `r` of this database."""
    process = other(path)
    out, err = process.communicate()
    assert (out, "LockedError" in err) == ("", True), (out, err)
    return err


def symlinked(path: Path) -> Path:
    path.with_name("link.db").symlink_to(path.name)
    return path.with_name("link.db")


def hard_linked(path: Path) -> Path:
    path.with_name("hard.db").hardlink_to(path)
    return path.with_name("hard.db")


def moved(path: Path) -> Path:
    return path.rename(path.with_name("moved.db"))


def in_a_folder_that_moved(path: Path) -> Path:
    return path.parent.rename(path.parent.with_name("moved")) / path.name


def without_a_lock_file(path: Path) -> Path:
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    return path


of_the_file = pytest.mark.skipif(lock.OFD is None, reason="the lock is on a file beside it")
WAYS = [
    *(symlinked, in_a_folder_that_moved),
    *(pytest.param(w, marks=of_the_file) for w in (hard_linked, moved, without_a_lock_file)),
]


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_no_other_way_to_the_file_gets_round_the_lock(
    tmp_path: Path, way: Callable[[Path], Path]
) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder/x.db"
    with held(path):
        refused(way(path))


@pytest.mark.parametrize("way", [symlinked, hard_linked, without_a_lock_file])
def test_nor_does_it_within_one_process(tmp_path: Path, way: Callable[[Path], Path]) -> None:
    path = tmp_path / "x.db"
    with (
        Store(path) as store,
        store.lock("r"),
        pytest.raises(LockedError, match=r"this process|different name"),
        Store(way(path)) as again,
        again.lock("r"),
    ):
        pass


def test_a_lock_is_gone_with_a_killed_process_though_its_children_live(tmp_path: Path) -> None:
    code = HOLD.replace(
        "sys.stdin.read()",
        # It is killed once its child runs: until then a child has what its parent had open.
        "import os\n    seen, runs = os.pipe()\n"
        "    if os.fork(): os.read(seen, 1), os.kill(os.getpid(), 9)\n"
        "    os.write(runs, b'1')\n    sys.stdin.read()",
    )
    command = [sys.executable, "-c", code, str(tmp_path / "x.db")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.wait() == -9
        with Store(tmp_path / "x.db") as store, store.lock("r"):
            pass
        assert process.stdin is not None
        process.stdin.close()  # the child has lived until now


def test_sqlite_keeps_its_own_locks_while_another_store_of_the_process_is_closed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    with Store(path) as store:
        store.flush()
        with Store(path) as second, second.lock("r"):
            pass
        # Whoever closes the last connection removes the log: this one must not think it is.
        code = f"import sqlite3; sqlite3.connect({str(path)!r}).execute('SELECT * FROM runs')"
        subprocess.run([sys.executable, "-c", code], check=True)
        assert path.with_name("x.db-wal").exists()


def test_a_thread_of_the_same_process_is_not_called_another_process(tmp_path: Path) -> None:
    path, said = tmp_path / "x.db", list[str]()

    def take() -> None:
        with pytest.raises(LockedError) as error, Store(path) as store, store.lock("r"):
            pass
        said.append(str(error.value))

    with Store(path) as store, store.lock("r"):
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
    assert said == ["this process is already working on r, in another thread or task"]


@of_the_file
@pytest.mark.long
def test_a_database_that_is_used_under_another_name_is_refused_before_it_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    with held(path):
        hard = hard_linked(path)
        assert "in use under a different name" in refused(hard)
        assert not hard.with_name("hard.db-wal").exists()
    with Store(hard) as store, store.lock("r"):  # one after the other is no harm
        pass
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_where_the_database_cannot_be_locked_a_file_beside_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "OFD", None)
    path = tmp_path / "x.db"
    with Store(path) as store, store.lock("r"):
        assert path.with_name("x.db.lock").exists()
        with pytest.raises(LockedError), Store(symlinked(path)) as again, again.lock("r"):
            pass
    assert not os.path.lexists(path.with_name("link.db.lock"))
