"""The schema of a file is compared before anything is read, and a query ends at a signal."""

import asyncio
import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice import Workspace
from grpo_practice.store import Store
from grpo_practice.store.check import check
from grpo_practice.store.db import connect, explained
from grpo_practice.store.migrate import migrate
from grpo_practice.store.shape import DIGEST, digest, objects, schema_faults
from grpo_practice.viewer import server
from grpo_practice.viewer.address import Page, Query

ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT max(n) FROM x"


def test_the_digest_is_that_of_the_schema() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db)
        found = objects(db)
        assert not any(schema_faults(found))
        assert digest(found) == DIGEST, (
            "the schema has changed: write this into DIGEST of store/shape.py"
        )


def test_a_trigger_named_like_sqlite_s_own_is_found() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db)
        sql = "CREATE TRIGGER sqlite_x AFTER UPDATE ON runs BEGIN UPDATE runs SET note = ''; END"
        db.execute("PRAGMA writable_schema = ON")
        row = ("trigger", "sqlite_x", "runs", 0, sql)
        db.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
        assert any(schema_faults(objects(db)))


def test_a_signal_ends_a_query(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    Store(path).close()
    with closing(connect(path)) as db:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt), explained(path):
            db.execute(ENDLESS).fetchone()


def test_an_expression_may_be_named_like_a_column(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    Store(path).close()
    with closing(connect(path)) as db:
        assert tuple(db.execute("SELECT 1.5 AS step, 'x' AS n").fetchone()) == (1.5, "x")


@pytest.mark.long
async def test_a_page_that_is_being_read_does_not_keep_the_viewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reading = tmp_path / "a.db", threading.Event()
    Store(path).close()

    def endless(store: Store, query: Query) -> Page:
        reading.set()
        store.read(lambda db: db.execute(ENDLESS).fetchone())
        return Page("view/failure.html")

    monkeypatch.setattr(server, "VIEWS", {**server.VIEWS, "/endless": endless})
    ready = asyncio.get_running_loop().create_future()
    work = Workspace(path).view_async(port=0, open_browser=False, on_ready=ready.set_result)
    task = asyncio.create_task(work)
    url = (await ready).url
    _, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
    page = url.split("/", 3)[3]
    writer.write(f"GET /{page}endless HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    await asyncio.to_thread(reading.wait)
    task.cancel()
    await asyncio.wait([task])
    writer.close()
    assert task.cancelled()


def test_a_table_of_somebody_else_changes_no_check_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    Store(path).close()
    with closing(connect(path)) as db:
        db.execute('CREATE TABLE "my notes" (n TEXT, updated_at TEXT, meta TEXT)')
        db.execute("""INSERT INTO "my notes" VALUES ('x', 'yesterday', 'no JSON')""")
    with closing(connect(path)) as db:
        assert str not in db._kinds["n"], "datasets.n is a number"
    assert [finding.wrong for finding in check(path)] == [[] for _ in check(path)]
