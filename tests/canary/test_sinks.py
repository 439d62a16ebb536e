"""Each place a text leaves by, on its own: it keeps a key in, whoever let it come so far."""

import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.cli.options import as_typed, keep_secrets
from grpo_practice.cli.terminal import tables
from grpo_practice.cli.terminal.formatting import note
from grpo_practice.cli.terminal.tables import facts, table
from grpo_practice.core.errors import DataError, VerifyError
from grpo_practice.core.files import write_file
from grpo_practice.core.redact import redactor
from grpo_practice.core.types import Sample
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.store.datasets import add
from grpo_practice.store.db import connect, prepare
from grpo_practice.store.ledger import _pack
from grpo_practice.verify.user_function import read_result
from tests.canary.keys import DOTENV, HEADER, LOGIN, PASTED, STUDENT, UNUSED, keys_in


@pytest.fixture(autouse=True)
def known() -> None:
    redactor.know([STUDENT, HEADER, LOGIN])


@pytest.mark.parametrize("columns", [40, 200])
@pytest.mark.parametrize(
    "show",
    [
        lambda: facts([("error", f"{'x' * 25}{STUDENT}{HEADER}")]),
        lambda: table(["a", "b"], [["x" * 25, f"{STUDENT} {LOGIN}"]]),
        lambda: table(["a", STUDENT], [["x", "y"]], stderr=True),
        lambda: note(f"{'x' * 30}{STUDENT}"),
    ],
)
def test_a_key_is_hidden_before_a_line_can_divide_it(
    show: Callable[[], None],
    columns: int,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(tables, "room", lambda **_: columns)  # consoles keep their first width
    show()
    out, err = capfd.readouterr()
    assert "***" in out + err
    assert not keys_in((out + err).encode())


def test_what_a_connection_stores_holds_no_key_and_is_found_again(tmp_path: Path) -> None:
    prepare(tmp_path / "x.db")
    with closing(connect(tmp_path / "x.db")) as db:
        db.execute("CREATE TABLE t (a, b)")
        db.execute("INSERT INTO t VALUES (?, ?)", (f"a {STUDENT}", 1))
        db.execute("INSERT INTO t VALUES (:a, :b)", {"a": HEADER, "b": b"\x00"})
        db.executemany("INSERT INTO t VALUES (?, ?)", [(LOGIN, None)])
        rows = db.execute("SELECT a FROM t WHERE a = ?", (f"a {STUDENT}",)).fetchall()
        assert [row[0] for row in rows] == ["a ***"]
        assert [row[0] for row in db.execute("SELECT a FROM t")] == ["a ***", "***", "***"]


def test_the_body_of_a_call_holds_no_key_compressed_or_not() -> None:
    body = f'{{"content":"{STUDENT}"}}'.encode()
    assert _pack(body, 0) == b'{"content":"***"}'
    assert zlib.decompress(_pack(body, 1)) == b'{"content":"***"}'


def test_a_row_that_holds_a_key_is_refused_by_its_number(tmp_path: Path) -> None:
    prepare(tmp_path / "x.db")
    samples = [Sample("a", 1), Sample("b", 1, meta={"x": [STUDENT]})]
    with closing(connect(tmp_path / "x.db")) as db:
        with pytest.raises(DataError, match="row 2 of dataset 'd' contains a secret"):
            add(db, "d", StagedSamples(samples), origin="f", replace=False)
        with pytest.raises(DataError, match="the name of the dataset"):
            add(db, STUDENT, StagedSamples(samples[:1]), origin="f", replace=False)


def test_a_file_holds_no_key(tmp_path: Path) -> None:
    write_file(tmp_path / "a.yaml", f"x: {STUDENT}\n")
    assert (tmp_path / "a.yaml").read_text() == "x: ***\n"


def test_a_recorded_command_holds_no_key() -> None:
    text = as_typed(["eval", "--dataset", f"it's {HEADER}", "--set", f"a={LOGIN}"])
    assert not keys_in(text.encode())
    assert text.count("***") == 2


@pytest.mark.parametrize("dotenv", [True, False])
def test_2_42_the_keys_of_the_environment_are_known_before_a_command_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dotenv: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", UNUSED)
    if dotenv:
        (tmp_path / ".env").write_text(f"JUDGE_LLM_API_KEY={DOTENV}\n")
    keep_secrets(["eval", "--base-url", "https://me:pass-w0rd@h/v1", f"--x={PASTED}"])
    assert {UNUSED, PASTED, "pass-w0rd"} <= redactor.known
    assert (DOTENV in redactor.known) is dotenv


def test_2_42_an_env_file_that_cannot_be_read_does_not_stop_a_command_that_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_bytes(b"A=\xff\n")
    keep_secrets(["runs", "list"])


def test_a_verdict_holds_no_key_also_where_its_value_is_cut() -> None:
    verdict = read_result({"reward": 1, "reasoning": STUDENT, "extracted": HEADER}, "f.py:f")
    assert (verdict.critique, verdict.extracted) == ("***", "***")
    for before in range(150, 200):
        with pytest.raises(VerifyError) as e:
            read_result({"reward": "x" * before + STUDENT}, "f.py:f")
        assert not keys_in(str(e.value).encode())


SCRIPT = """
import asyncio, gc, logging, sys, threading, warnings
from grpo_practice.core.redact import hide_output, redactor
hide_output()
redactor.know([sys.stdin.read()])
(key,) = [k for k in redactor.known]
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("httpx").debug("sent %s", {"authorization": key})
warnings.warn(f"warned of {key}")
class Odd:
    def __del__(self):
        raise ValueError(key)
Odd()
async def fail():
    raise ValueError(key)
async def main():
    task = asyncio.ensure_future(fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
asyncio.run(main())
gc.collect()
def thread():
    raise ValueError(key)
started = threading.Thread(target=thread)
started.start()
started.join()
raise ValueError(key)
"""


def test_logs_warnings_and_tracebacks_that_python_prints_itself_hold_no_key() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=STUDENT, capture_output=True, text=True, check=False
    )
    said = done.stderr
    for sign in ("DEBUG:httpx", "warned of", "ignored in", "never retrieved", "Thread-", "Error"):
        assert sign in said, said
    assert said.count("***") >= 6
    assert not keys_in(said.encode())


def test_a_database_error_of_sqlite_itself_holds_no_key(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "x.db")) as db, pytest.raises(sqlite3.Error) as e:
        db.execute("SELECT ? FROM nothing", (STUDENT,))
    assert not keys_in(str(e.value).encode())
