"""A database of any earlier version becomes one of this version; nothing is lost or paid again."""

import gzip
import re
import sqlite3
import stat
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.cli.main import run
from grpo_practice.errors import FingerprintError, StoreError
from grpo_practice.practice import METHOD
from grpo_practice.store import Store, bound_keys, branches, db, migrate
from grpo_practice.store.check import check
from grpo_practice.store.queries import run_health, scores
from tests.app.project import CONFIG, Project
from tests.export.rendered import export_agent
from tests.store.make_fixture import SCHEMAS, make
from tests.store.test_faults import as_nobody

OLD = sorted(SCHEMAS.glob("v*.db.gz"))
WORLD = "2972f09c18dd217eeda660e8a6fc0a852c72c99c5585bb325e93019b4d61a37d"
NEWER = "8bacd9e27ac2492011e9081a1aa79674247d03bf9951c0aa7f3b8b960055be3d"
VOTED = "9a1ce6ef5d9f8fd9c745ec67d6585ac19261b7bc7be895ca08cc6a959f4964c8"
RESULTS = {
    "v1": WORLD,
    "v2": WORLD,
    "v3": NEWER,
    "v4": NEWER,
    "v5": VOTED,
    "v6": VOTED,
    "v7": VOTED,
    "v8": VOTED,
    "v9": VOTED,
    "v10": VOTED,
    "v11": VOTED,
}
"""`Project.results()` of each, by the code that made it."""
EARLIER_METHOD = ("v1", "v2", "v3", "v4")
"""Those whose runs were merged by a method before `practice.METHOD`."""


def unpacked(old: Path, folder: Path) -> Path:
    path = folder / "p.db"
    path.write_bytes(gzip.decompress(old.read_bytes()))
    return path


@pytest.fixture(params=OLD, ids=lambda p: p.name.removesuffix(".db.gz"))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


oldest = pytest.mark.parametrize("old", OLD[:1], ids=["v1"], indirect=True)
"""For what goes through a process: the one that is the most migrations behind."""


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as it:
        return int(it.execute("PRAGMA user_version").fetchone()[0])


Rows = dict[str, tuple[list[str], list[Any]]]


def rows(path: Path, like: Rows | None = None) -> Rows:
    """Table → its columns and every row of it; `like`: of the tables and columns there alone."""
    with closing(sqlite3.connect(path)) as it:
        sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%sqlite_%'"
        found = {}
        for (name,) in it.execute(sql).fetchall() if like is None else [(n,) for n in like]:
            own = [c[1] for c in it.execute(f"PRAGMA table_info({name})")]
            columns = own if like is None else like[name][0]
            selected = it.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
            found[name] = (columns, sorted(selected, key=repr))
        return found


def test_there_is_a_database_of_every_earlier_version() -> None:
    made = {int(re.sub(r"\D", "", path.name)) for path in OLD}
    assert made == set(range(1, db.VERSION)), (
        f"put a database of version {db.VERSION - 1} there, made before the schema changed:"
        " python -m tests.store.make_fixture"
    )
    assert {path.name.removesuffix(".db.gz") for path in OLD} == set(RESULTS)


async def test_the_next_database_of_them_can_be_made(tmp_path: Path) -> None:
    told = await make(tmp_path)
    path = unpacked(tmp_path / f"v{db.VERSION}.db.gz", tmp_path)
    assert version(path) == db.VERSION
    assert re.fullmatch(f'"v{db.VERSION}": "[0-9a-f]{{64}}"', told)


def test_every_schema_file_has_its_name_among_the_migrations() -> None:
    files = {path.stem for path in (Path(db.__file__).parent / "schema").glob("*.sql")}
    assert files == {str(n) for n in range(1, db.VERSION + 1)}, (
        "give schema/N.sql a name in MIGRATIONS of store/db.py; what is there never changes"
    )


SENTENCES = [
    ("provider", "the connection broke: http://h: x", "cut"),
    ("provider", "no complete answer in time: http://h: x", "deadline"),
    ("endpoint", "cannot reach http://h: x", "refused"),
    ("endpoint", "the proxy lets nothing through to http://h: x", "refused"),
    ("endpoint", "no secure connection to http://h: x", "refused"),
    ("provider", "http://h: HTTP 200 with no choices", "no usable answer"),
    ("CancelledError", "cannot reach http://h: x", "cancelled"),
]


def test_kinds_that_version_5_wrote_into_sentences_become_values(tmp_path: Path) -> None:
    path = unpacked(SCHEMAS / "v5.db.gz", tmp_path)
    with closing(sqlite3.connect(path)) as old:
        (step,) = old.execute("SELECT min(step) FROM steps WHERE branch_id = 1").fetchone()
        for kind, message, _ in SENTENCES:
            old.execute(
                """INSERT INTO failures (invocation_id, branch_id, step, slot, attempt, stage, kind,
                     message, tries, maybe_paid, created_at)
                   VALUES (1, 1, ?, 0, 0, 'play', ?, ?, 1, 0, 't')""",
                (step, kind, message),
            )
        for slot, reason in enumerate(["ReplyError: it is empty", "EndpointError: HTTP 500"]):
            old.execute(
                """UPDATE groups SET status = 'failed', reason = ?
                    WHERE branch_id = 1 AND step = ? AND slot = ?""",
                (reason, step, slot),
            )
        old.execute(
            """UPDATE steps SET status = 'merge_failed',
                 stats = json_set(stats, '$.merge_failed', 'EndpointError: HTTP 503')
                WHERE branch_id = 1 AND step = ?""",
            (step,),
        )
        old.execute(
            """UPDATE verdicts SET reward = NULL, error = 'judge: down: 3'
                WHERE rollout_id = (SELECT min(rollout_id) FROM rollouts WHERE branch_id = 1)"""
        )
        old.commit()
    with Store(path) as store:
        branch = store.read(branches.load, 1)
        health = store.read(run_health.health_of, branch)
        assert health.unanswered == Counter(said for _, _, said in SENTENCES)
        assert health.untaught == 2
        assert store.read(scores.outcomes, branch)["error.judge"] == 1
        assert store.read(scores.failures, branch) == {"down: 3": 1}


def test_every_row_is_kept_and_a_copy_put_beside_it(old: Path) -> None:
    before, was = rows(old), version(old)
    Store(old).close()
    assert version(old) == db.VERSION
    assert rows(old, before) == before
    copy = old.with_name(f"p.db.v{was}.bak")
    assert (version(copy), rows(copy)) == (was, before)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [text for look in check(old) for text in look.wrong] == []
    assert sorted(p.name for p in old.parent.iterdir()) == ["p.db", f"p.db.v{was}.bak"]


@pytest.mark.parametrize("name", RESULTS)
async def test_the_runs_in_it_go_on_without_a_request(tmp_path: Path, name: str) -> None:
    project = Project(tmp_path / "p")
    project.db.unlink()
    unpacked(SCHEMAS / f"{name}.db.gz", project.folder)
    practised = await project.practise("practice.do_eval=true")
    evaluated = await project.evaluate()
    assert (practised.requests.new, evaluated.requests.new) == (0, 0)
    assert project.results() == RESULTS[name]
    with Store(project.db) as store:
        assert "## Experience from practice" in export_agent(store, "toy", "last", "yaml")
    more = await project.evaluate("pass_k=2")
    assert more.requests.new == 12


def test_its_runs_are_shown(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["list"], ["show", "toy"]):
        assert run(["runs", *words, "--db", str(old)]) == 0
        assert "toy" in capsys.readouterr().out


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


@oldest
@pytest.mark.parametrize("n", [0, 1])
def test_one_that_is_killed_leaves_the_old_database(old: Path, n: int) -> None:
    before, was = rows(old), version(old)
    done = subprocess.run([sys.executable, "-c", STOP, str(old), str(n)], check=False)
    assert done.returncode == 9
    assert (version(old), rows(old)) == (was, before)
    Store(old).close()
    assert (version(old), rows(old, before)) == (db.VERSION, before)


def test_one_that_fails_leaves_the_old_database(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, was = rows(old), version(old)
    good = migrate._statements
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "_statements", lambda script: [*good(script), "no SQL"])
        with pytest.raises(StoreError, match="syntax"):
            Store(old)
    assert (version(old), rows(old)) == (was, before)


MANY = """
import os, sys
from pathlib import Path
from grpo_practice.store import Store, migrate
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


def many(path: Path) -> tuple[str, str]:
    """How four processes ended that opened the database at once, and what they said."""
    command = [sys.executable, "-c", MANY, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


@oldest
def test_several_processes_at_once_migrate_once(old: Path) -> None:
    before, was = rows(old), version(old)
    assert many(old) == ("[0, 0, 0, 0]\n", "")
    assert rows(old, before) == before
    assert version(old.with_name(f"p.db.v{was}.bak")) == was


def test_several_processes_at_once_make_a_new_database(tmp_path: Path) -> None:
    assert many(tmp_path / "new.db") == ("[0, 0, 0, 0]\n", "")
    assert version(tmp_path / "new.db") == db.VERSION


@oldest
def test_1_63_one_that_may_not_be_written_is_a_sentence(old: Path) -> None:
    (old.parent / "c.yaml").write_text(CONFIG)
    old.chmod(0o400)
    done = as_nobody("runs", "list", "--db", "p.db", folder=old.parent)
    assert done.returncode == 7
    assert "is read-only" in done.stderr
    assert version(old) < db.VERSION


REFUSED = "was begun by an older version|was started with another configuration"


@pytest.mark.parametrize("name", EARLIER_METHOD)
async def test_a_run_that_was_merged_in_another_way_is_not_gone_on_with(
    tmp_path: Path, name: str
) -> None:
    """Steps of two methods in one run would be one result over two experiments."""
    project = Project(tmp_path / "p")
    project.db.unlink()
    unpacked(SCHEMAS / f"{name}.db.gz", project.folder)
    with pytest.raises(FingerprintError, match=REFUSED) as refused:
        await project.practise("practice.epochs=3")
    (change,) = [c for c in refused.value.diff if c.key == "practice.method"]
    assert (change.was, change.now) == (
        "1 (every merged proposal passes)",
        bound_keys._METHODS[METHOD],
    )
    with closing(sqlite3.connect(project.db)) as it:
        it.execute("UPDATE steps SET status = 'open', closed_at = NULL WHERE step = 3")
        it.commit()
    with pytest.raises(FingerprintError, match=REFUSED) as refused:
        await project.practise()
    assert "--restart-step" in (refused.value.hint or "")
    assert project.results() == RESULTS[name]
    afresh = await project.practise(restart_step=2)
    assert afresh.requests.new > 0
