"""`db backup` and `db check`."""

import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.core.types import Sample
from grpo_practice.store import Store
from tests.cli.conftest import Gp

DB = "grpo-practice.db"


def test_a_copy_is_private_whole_and_never_replaces_anything_unasked(demo: Gp) -> None:
    ran = demo("db", "backup", "copy.db")
    assert ran.code == 0, ran.err
    assert stat.S_IMODE(Path("copy.db").stat().st_mode) == 0o600
    listed = demo("runs", "list", "--db", "copy.db").out
    assert listed.replace(" --db copy.db", "") == demo("runs", "list").out
    again = demo("db", "backup", "copy.db")
    assert again.code == 2
    assert "already exists" in again.err
    assert demo("db", "backup", "copy.db", "--force").code == 0
    assert demo("db", "check", "--db", "copy.db").code == 0


def test_a_copy_has_a_name_of_its_own(demo: Gp) -> None:
    assert demo("db", "backup").code == 0
    assert Path(f"{DB}.bak").exists()
    assert not [p for p in Path().iterdir() if p.name.startswith(f".{DB}")]


def test_the_database_is_no_copy_of_itself(demo: Gp) -> None:
    Path("link").symlink_to(DB)
    for name in (DB, "link"):
        ran = demo("db", "backup", name, "--force")
        assert ran.code == 2
        assert "the database itself" in ran.err


PARTS = [f"{DB}{end}" for end in ("-wal", "-shm", "-journal", ".lock")]


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
def test_no_part_of_the_database_is_replaced_by_a_copy(demo: Gp, force: tuple[str, ...]) -> None:
    store = Store(Path(DB))
    store.add_dataset("paid", [Sample("q", "1")], origin="x", replace=False)
    Path("sub").mkdir()
    Path("to-sub").symlink_to("sub")
    named: list[str | Path] = []
    for n, part in enumerate(PARTS):
        if n == 0:
            assert Path(part).stat().st_size  # what was just added stands nowhere else
        Path(f"link{n}").symlink_to(part)  # the journal is not there: a link to nothing yet
        if Path(part).exists():
            Path(f"hard{n}").hardlink_to(part)
            named.append(f"hard{n}")
        named += [part, f"sub/../{part}", f"to-sub/../{part}", Path(part).absolute(), f"link{n}"]
        named += [part.upper(), f"other.db{part.removeprefix(DB)}"]
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    for name in named:
        ran = demo("db", "backup", str(name), *force)
        assert ran.code == 2, name
        assert "part of" in ran.err
        assert "hint: name another file" in ran.err
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before
    store.close()
    assert "paid" in demo("data", "list").out


def test_a_part_is_known_also_where_the_database_is_named_by_a_link(demo: Gp) -> None:
    Path("other").mkdir()
    Path("other/name.db").symlink_to(Path(DB).absolute())
    with Store(Path(DB)):
        Path("log").hardlink_to(f"{DB}-wal")
        for name, said in (("log", "is a part of other/name.db"), (DB, "the database itself")):
            ran = demo("db", "backup", name, "--force", "--db", "other/name.db")
            assert (ran.code, said in ran.err) == (2, True), ran.err


def test_a_link_is_followed_and_stays(demo: Gp) -> None:
    Path("other").mkdir()
    Path("other/copy").write_text("old")
    Path("link").symlink_to("other/copy")
    assert demo("db", "backup", "link").code == 2
    assert Path("other/copy").read_text() == "old"
    assert demo("db", "backup", "link", "--force").code == 0
    assert Path("link").is_symlink()
    assert not Path("other/copy").is_symlink()
    assert demo("db", "check", "--db", "other/copy").code == 0
    with Store(Path("other/copy")):
        ran = demo("db", "backup", "link", "--force")
        assert (ran.code, "in use" in ran.err) == (2, True)


def test_what_is_no_plain_file_is_not_replaced(demo: Gp) -> None:
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    for name in ("pipe", "link", "."):
        ran = demo("db", "backup", name, "--force")
        assert ran.code == 2, ran.out
        assert "not a regular file" in ran.err or "is a directory" in ran.err
    assert Path("pipe").is_fifo()
    assert Path("link").is_symlink()


def test_a_database_in_use_is_not_replaced(demo: Gp) -> None:
    with Store(Path("used.db")):
        ran = demo("db", "backup", "used.db", "--force")
    assert (ran.code, "in use" in ran.err) == (2, True)


def test_a_folder_that_is_not_there_is_named(demo: Gp) -> None:
    ran = demo("db", "backup", "nowhere/copy.db")
    assert ran.code == 7
    assert "nowhere/copy.db" in ran.err


@pytest.mark.long
def test_a_copy_made_while_a_run_writes_is_one_moment_of_it(demo: Gp) -> None:
    stop = threading.Event()

    def write() -> None:
        with Store(Path(DB)) as store:
            n = 0
            while not stop.is_set():
                rows = [Sample(f"{n} {i}", "1") for i in range(5)]
                store.add_dataset(f"d{n}", rows, origin="x", replace=False)
                n += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(5):
            assert demo("db", "backup", "copy.db", "--force").code == 0
            assert demo("db", "check", "--db", "copy.db").code == 0
            assert demo("db", "check").code == 0
    finally:
        stop.set()
        thread.join()


def test_looking_changes_nothing_also_not_what_a_killed_process_left(demo: Gp) -> None:
    store = Store(Path(DB))
    store.add_dataset("d", [Sample("q", "1")], origin="x", replace=False)
    for name in (DB, f"{DB}-wal"):  # as they are while it is open: a kill would leave this
        Path(f"left-{name}").write_bytes(Path(name).read_bytes())
    store.close()
    left = [Path(f"left-{name}") for name in (DB, f"{DB}-wal")]
    before = [path.read_bytes() for path in left]
    ran = demo("db", "check", "--db", f"left-{DB}", "--json")
    assert ran.code == 0, ran.out
    assert [path.read_bytes() for path in left] == before
    Path("link.db").symlink_to(f"left-{DB}")  # SQLite looks for the log beside the file
    assert demo("db", "check", "--db", "link.db").code == 0
    assert [path.read_bytes() for path in left] == before
    looked = {look["name"]: look["looked_at"] for look in ran.document["checks"]}
    assert looked["datasets"] == 3  # the demo's two, and the one in the log


def sql(*statements: str) -> Callable[[], None]:
    def run() -> None:
        with closing(sqlite3.connect(DB)) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            for statement in statements:
                assert db.execute(statement).rowcount > 0, statement
            db.commit()

    return run


FIRST_STEP = "branch_id = (SELECT min(branch_id) FROM branches JOIN runs USING (run_id)"
FIRST_STEP += " WHERE kind = 'practice') AND step = 0"


@pytest.mark.long_after(8)
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (sql("DELETE FROM call_bodies WHERE call_id = 3"), "call 3 has no body"),
        (sql("UPDATE call_bodies SET reply = x'00', codec = 1 WHERE call_id = 3"), "call 3: a"),
        (sql("UPDATE verdicts SET error = 'x' WHERE rollout_id = 2"), "rollout 2 has an invalid"),
        (sql("UPDATE verdicts SET reward = 1.5 WHERE rollout_id = 2"), "rollout 2 has an invalid"),
        (sql("DELETE FROM rollout_bodies WHERE rollout_id = 2"), "rollout 2 has no response"),
        (sql(f"UPDATE steps SET library_out = NULL WHERE {FIRST_STEP}"), "with no library"),
        (sql(f"UPDATE steps SET stats = NULL WHERE {FIRST_STEP}"), "with no statistics"),
        (sql(f"DELETE FROM groups WHERE {FIRST_STEP} AND slot = 0"), "11 of 12 groups"),
        (
            sql(
                f"DELETE FROM verdicts WHERE rollout_id IN (SELECT rollout_id FROM rollouts WHERE"
                f" {FIRST_STEP} AND slot = 0 AND attempt = 0)",
                f"DELETE FROM rollouts WHERE {FIRST_STEP} AND slot = 0 AND attempt = 0",
            ),
            "59 of 60 rollouts",
        ),
        (sql("UPDATE experience_texts SET text = 'x'"), "has changed since it was created"),
        (sql("UPDATE runs SET head_branch = 2 WHERE run_id = 'demo/eval'"), "has no head"),
        (sql("UPDATE texts SET body = 'x'"), "does not match its hash"),
        (sql("DELETE FROM dataset_rows WHERE position = 0"), "of its 24 samples"),
        (sql("DELETE FROM samples"), "refers to a missing row of samples"),
        (sql("UPDATE call_sums SET tokens_in = 0 WHERE step = 0"), "do not match its calls"),
        (sql("DELETE FROM call_sums WHERE step = 0"), "do not match its calls"),
        (
            sql("UPDATE steps SET sums = json_set(sums, '$.rollouts', 1) WHERE step = 0"),
            "do not match its rollouts",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_is_wrong_is_found(demo: Gp, harm: Callable[[], None], said: str) -> None:
    harm()
    ran = demo("db", "check")
    assert ran.code == 7
    assert said in ran.out
    document = demo("db", "check", "--json").document
    assert (document["schema"], document["exit"]) == ("grpo-practice.db-check/1", 7)
    assert any(said in text for look in document["checks"] for text in look["wrong"])


EVIL = "CREATE TRIGGER evil AFTER INSERT ON calls BEGIN DELETE FROM texts; END"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ([EVIL], "trigger evil on calls does not belong to this program"),
        (
            ["DROP VIEW v_steps", "CREATE VIEW v_steps AS SELECT * FROM steps"],
            "view v_steps has been changed",
        ),
        (["DROP VIEW v_steps"], "view v_steps is missing"),
        (
            ["CREATE UNIQUE INDEX one ON runs (kind)"],
            "index one on runs does not belong to this program",
        ),
        (["CREATE TABLE mine (x)", "CREATE INDEX fast ON mine (x)"], None),
    ],
)
def test_a_schema_that_somebody_changed_is_found(
    demo: Gp, harm: list[str], said: str | None
) -> None:
    with closing(sqlite3.connect(DB)) as db:
        db.execute("DELETE FROM runs WHERE kind <> 'practice'") if "UNIQUE" in harm[0] else None
        for statement in harm:
            db.execute(statement)
        db.commit()
    ran = demo("db", "check")
    assert (said or "schema (") in ran.out
    assert (ran.code == 0) is (said is None), ran.out


@pytest.mark.parametrize("command", ["check", "backup"])
def test_1_63_what_is_no_database_of_ours_is_a_sentence(gp: Gp, command: str) -> None:
    assert gp("db", command).code == 2
    Path("text").write_text("hello" * 1000)
    with closing(sqlite3.connect("other")) as db:
        db.execute("CREATE TABLE mine (x)")
    for name, version in (("newer", 99), ("developed", 12)):
        Store(Path(name)).close()
        with closing(sqlite3.connect(name)) as db:
            db.execute(f"PRAGMA user_version = {version}")
    for name, said in (
        ("text", "not a database"),
        ("other", "another program"),
        ("newer", "newer"),
        ("developed", "start a new file with --db"),
    ):
        ran = gp("db", command, "--db", name)
        assert ran.code == 7, name
        assert said in ran.err
