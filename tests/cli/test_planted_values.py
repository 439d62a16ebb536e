"""Values that no program of ours stores, planted in each column of a database with our schema."""

import asyncio
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from markdown_it import MarkdownIt
from typing_extensions import override

from grpo_practice.rollout.chat_server.server import listening
from grpo_practice.viewer.server import Door, Viewed, application
from tests.contract.command import Gp
from tests.contract.viewer.viewing import Viewer

DB = "grpo-practice.db"
MARK = "EVIL"
TEXT = (
    f"{MARK}\x1b[2J\x07\u202e<script>{MARK}</script>[{MARK}](http://evil.example){MARK}\n```\n\n"
    f"# {MARK}\n\n[{MARK}]: http://evil.example\n```text\n"
)
"""Text that would clear a terminal, be a script, a link or a heading, or end a fence."""
BYTES = b"\xff\x00EVIL"
VALUES: Mapping[str, tuple[object, ...]] = {
    "TEXT": (TEXT, 7, 1.5, BYTES, None),
    "INTEGER": (TEXT, 1.5, BYTES, None, -(2**63), 2**62),
    "REAL": (TEXT, BYTES, None, 1e999, -1e300),
    "BLOB": (TEXT, 7, BYTES, None),
}
"""Declared type → values to plant; None only where a column may not be NULL."""
FREE: Mapping[str, str] = {
    "branches": "base_dir created_at",
    "calls": "answered_by created_at finish name price role",
    "call_sums": "answered_by name",
    "checkpoints": "made_at path",
    "datasets": "created_at origin",
    "failures": "broken created_at kind message stage",
    "groups": "reason",
    "invocations": "command ended_at host reason started_at version",
    "lessons": "text",
    "libraries": "created_at",
    "operations": "finding reason rule text",
    "rollout_bodies": "response",
    "rollouts": "error head",
    "runs": "arm arm_change created_at note tags",
    "samples": "cluster level question source",
    "steps": "closed_at",
    "verdicts": "critique extracted",
    "experience_texts": "text",
    "verifiers": "name",
}
"""Table → columns whose text may be any."""
COMMANDS = (
    "runs list",
    "runs show demo",
    "runs show demo/eval",
    "runs compare demo/eval AFTER",
    "runs export demo -o out.csv",
    "report demo -o out.html",
    "report demo -o out.md",
    "experiences list",
    "experiences show E1 --run demo",
    "rollouts list demo",
    "rollouts show demo",
    "data list",
    "data show test",
    "export-agent --run demo -o AGENTS.md",
    "export-agent --run demo -o agent.md",
    "export-agent --run demo -o out.yaml",
    "db check",
)
PAGES = (
    "/",
    "/run run=demo",
    "/step run=demo step=0",
    "/group run=demo step=0 slot=0",
    "/rollout run=demo step=0 slot=0 attempt=0",
    "/rollouts run=demo",
    "/questions run=demo",
    "/failures run=demo",
    "/experiences run=demo",
    "/experience run=demo id=E1",
    "/compare a=demo/eval b=AFTER",
)
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
QUICK = 821
"""One of so many combinations of column, value and reader is tried in `make test`."""
THOROUGH, PARTS = 5, 8
"""`make test-all` tries one of so many, in so many tests; THOROUGH = 1 tries each, in an hour."""


class Column(NamedTuple):
    """A column of a table."""

    table: str
    name: str
    kind: str
    nullable: bool
    table_sql: str

    @override
    def __str__(self) -> str:
        return f"{self.table}.{self.name}"


@asynccontextmanager
async def viewing(path: Path) -> AsyncIterator[Viewer]:
    """Show the pages of a database that is damaged, where `view` would refuse to begin."""
    door, failures = Door(), list[str]()
    with ThreadPoolExecutor(4) as readers:
        app = application(path, door, readers, set(), unexpected=lambda e: failures.append(repr(e)))
        async with listening(app) as port, aiohttp.ClientSession() as session:
            viewed = Viewed(f"http://127.0.0.1:{port}/{door.token}/", path)
            yield Viewer(viewed, session, failures)


class Reader:
    """Commands and pages that read a database in the current folder."""

    def __init__(self, demo: Gp) -> None:
        self._demo, self._prepared = demo, Path("prepared.db")
        with closing(sqlite3.connect(DB, isolation_level=None)) as db:
            _fill_empty_tables(db)
            (self._after,) = db.execute(
                "SELECT max(run_id) FROM runs WHERE run_id GLOB 'demo/eval/*'"
            ).fetchone()
            rows = db.execute(
                """SELECT t.name, c.name, c.type, NOT c."notnull", t.sql
                     FROM sqlite_schema t, pragma_table_info(t.name) c
                    WHERE t.type = 'table' AND t.name NOT GLOB '_sqlite*' ORDER BY 1, c.cid"""
            )
            self.columns = [Column(*row) for row in rows]
        shutil.copyfile(DB, self._prepared)

    def plant(self, values: Mapping[Column, object]) -> bool:
        """Begin with a new copy, and plant these; return False if no row can hold one."""
        shutil.copyfile(self._prepared, DB)
        return all(_plant(column, value) for column, value in values.items())

    def command(self, typed: str) -> tuple[int, str]:
        """Return the exit code of a command, and what it should not have printed or written."""
        words = [self._after if word == "AFTER" else word for word in typed.split()]
        target = Path(words[-1]) if "-o" in words else None
        if target:
            target.unlink(missing_ok=True)
        ran = self._demo(*words)
        said = ran.out + ran.err
        if "internal error" in said or "Traceback" in said:
            return ran.code, ran.err
        if ran.code == 7 and words != ["db", "check"] and "db check" not in ran.err:
            return ran.code, f"no hint: {ran.err}"
        written = target.read_text("utf-8") if target and target.exists() else ""
        return ran.code, _acting("", said) or _acting(target.suffix if target else "", written)

    async def pages(self, *pages: str) -> list[str]:
        """Return what is wrong with each of these pages, '' if nothing is."""
        found = list[str]()
        async with viewing(Path(DB)) as viewer:
            for page in pages:
                at, *query = page.replace("AFTER", self._after).split()
                _, text = await viewer.get(at, **dict(part.split("=", 1) for part in query))
                errors = " ".join(viewer.failures)
                viewer.failures.clear()
                found.append(errors or _acting(".html", text))
        return found

    def faults(self, reader: str) -> str:
        """Return what is wrong with the output of one command or page, '' if nothing is."""
        if reader in PAGES:
            return asyncio.run(self.pages(reader))[0]
        return self.command(reader)[1]


def _fill_empty_tables(db: sqlite3.Connection) -> None:
    of_demo = "SELECT head_branch, 0, {} FROM runs WHERE run_id = 'demo'"
    for table, columns, values in (
        (
            "failures",
            "invocation_id, slot, attempt, stage, kind, message, tries, maybe_paid, created_at",
            "1, 0, 0, 'play', 'x', 'm', 1, 0, created_at",
        ),
        (
            "updates",
            "inner, loss, learning_rate, grad_norm, uniform_share, tokens, seconds",
            "0, 1.0, 1.0, 1.0, 0.5, 1, 1.0",
        ),
        ("checkpoints", "path, sha256, bytes, made_at", "'x', zeroblob(32), 1, created_at"),
    ):
        db.execute(f"INSERT INTO {table} (branch_id, step, {columns}) {of_demo.format(values)}")


def _plant(column: Column, value: object) -> bool:
    """Store a value in each row that takes it, whatever the column's type; False for no row."""
    untyped = re.sub(
        r"\b(INTEGER(?! PRIMARY)|TEXT|REAL|BLOB)\b( NOT NULL)?|STRICT,?", "", column.table_sql
    )
    set_sql = "UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?"
    connect = partial(sqlite3.connect, DB, isolation_level=None)
    with closing(connect()) as db:
        (version,) = db.execute("PRAGMA schema_version").fetchone()
        triggers = db.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?",
            (column.table,),
        ).fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.execute("PRAGMA writable_schema = ON")
        db.execute(set_sql, (untyped, column.table))
        db.execute(f"PRAGMA schema_version = {version + 100}")
    with closing(connect()) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        try:
            update = f"UPDATE OR IGNORE {column.table} SET {column.name} = ?"
            taken = db.execute(update, (value,)).rowcount > 0
        except sqlite3.IntegrityError:  # a rowid takes numbers alone
            taken = False
        db.execute("PRAGMA writable_schema = ON")
        db.execute(set_sql, (column.table_sql, column.table))
        db.execute(f"PRAGMA schema_version = {version + 200}")
    with closing(connect()) as db:
        for _, made in triggers:
            db.execute(made)
    return taken


def _acting(suffix: str, text: str) -> str:
    """Return what of a text acts in a file of this kind, or on the terminal; '' for nothing."""
    if found := ACTS.search(text):
        return f"the control character {found[0]!r}"
    if suffix == ".html" and f"<script>{MARK}" in text:
        return "a script"
    for token in MarkdownIt().parse(text) if suffix == ".md" else ():
        line = text.splitlines()[token.map[0]].strip() if token.map else ""
        if token.type == "heading_open" and line == f"# {MARK}":
            return "a heading"
        kinds = {token.type, *(child.type for child in token.children or ())}
        if MARK in token.content and kinds & {"link_open", "html_inline", "html_block"}:
            return f"{kinds}"
    return ""


def _combinations(reader: Reader) -> Iterator[tuple[Column, object]]:
    for column in reader.columns:
        for value in VALUES[column.kind]:
            if value is not None or not column.nullable:
                yield column, value


@pytest.mark.long
async def test_no_stored_text_acts_in_any_output(demo: Gp) -> None:
    reader = Reader(demo)
    free = [c for c in reader.columns if c.name in FREE.get(c.table, "").split()]
    assert len(free) == sum(len(names.split()) for names in FREE.values())
    assert reader.plant(dict.fromkeys(free, TEXT))
    misses = list[tuple[str, object]]()
    for command in COMMANDS:
        code, fault = reader.command(command)
        if fault or code != (7 if command == "db check" else 0):
            misses.append((command, (code, fault)))
    misses += [x for x in zip(PAGES, await reader.pages(*PAGES), strict=True) if x[1]]
    assert misses == []


FOUND = {
    ("dataset_rows.position", 2**62, "data show test"),
    ("datasets.name", TEXT, "data list"),
    ("operations.slot", BYTES, "report demo -o out.html"),
    ("operations.op_id", 2**62, "/experience run=demo id=E1"),
    ("operations.slot", 2**62, "experiences show E1 --run demo"),
    ("operations.slot", -(2**63), "/experience run=demo id=E1"),
}
"""Cells of the matrix that once failed: column, value, reader."""


def _misses(demo: Gp, cells: slice) -> list[tuple[str, str, str, str]]:
    """Return column, value, reader and fault of each miss among these cells of the matrix."""
    reader, misses = Reader(demo), list[tuple[str, str, str, str]]()
    matrix = [*product(_combinations(reader), (*COMMANDS, *PAGES))]
    found = [cell for cell in matrix if (str(cell[0][0]), cell[0][1], cell[1]) in FOUND]
    assert len(found) == len(FOUND)
    for (column, value), read in [*matrix[cells], *found]:
        if reader.plant({column: value}) and (fault := reader.faults(read)):
            misses.append((str(column), f"{value!r:.20}", read, fault[:300]))
    return misses


@pytest.mark.long
def test_a_value_that_is_none_of_ours_is_damage(demo: Gp) -> None:
    assert _misses(demo, slice(None, None, QUICK)) == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_no_value_in_any_column_is_an_internal_error(demo: Gp, part: int) -> None:
    assert _misses(demo, slice(part * THOROUGH, None, PARTS * THOROUGH)) == []


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("experiences.label", TEXT, "experiences.label of experience_id 1 is TEXT"),
        ("steps.epoch", 1.5, "steps.epoch of branch_id 1, step 0 is REAL"),
        ("samples.question", BYTES, "samples.question of sample_id 1 is BLOB"),
    ],
)
def test_the_error_names_the_value(demo: Gp, column: str, value: object, said: str) -> None:
    reader = Reader(demo)
    assert reader.plant({one: value for one in reader.columns if str(one) == column})
    ran = demo("report", "demo", "-o", "r.html")
    assert (ran.code, ran.err.splitlines()) == (
        7,
        [
            f"error: the database {DB} is damaged: {said}",
            "hint: to see the details: grpo-practice db check",
        ],
    )


def test_a_database_without_its_salt_is_damaged(demo: Gp) -> None:
    with closing(sqlite3.connect(DB)) as db, db:
        db.execute("DELETE FROM address_salt")
    ran = demo("eval", "--config", "practice.yaml", "--model", "sim", "--limit", "1")
    assert ran.code == 7, ran
    assert f"the database {DB} is damaged: address_salt does not have exactly one row" in ran.err


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("samples.question", None, ("data", "show", "test")),  # fails while it is printed
        ("call_sums.cost_micro", 2**62, ("runs", "show", "demo/eval")),  # overflows in a sum
        ("failures.kind", BYTES, ("runs", "show", "demo/eval")),  # decoded in an expression
    ],
)
def test_a_value_that_fails_late_is_damage(
    demo: Gp, monkeypatch: pytest.MonkeyPatch, column: str, value: object, words: tuple[str, ...]
) -> None:
    reader = Reader(demo)
    assert reader.plant({one: value for one in reader.columns if str(one) == column})
    Path(DB).rename("other.db")
    monkeypatch.setenv("GRPO_PRACTICE_DB", "other.db")
    ran = demo(*words)
    assert ran.code == 7, ran
    assert "the database other.db is damaged" in ran.err
    assert "grpo-practice db check" in ran.err
