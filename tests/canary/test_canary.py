"""No piece of a key is in anything that a command leaves, whatever an endpoint or a person does.

A few cells of the table that `python -m tests.canary.matrix` prints; that is all of it.
"""

import base64
import signal
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.canary import keys, matrix
from tests.canary.echoes import ECHOES
from tests.canary.keys import Search, keys_in
from tests.canary.matrix import CRITIQUE, SCORED, WRONG
from tests.canary.place import Place
from tests.cli.test_help import ALL
from tests.contract.endpoint.actions import simulated, stall
from tests.contract.endpoint.server import serving
from tests.processes import HANG_S, program, until

HASTY = "import grpo_practice.run.waiting as d; d.GRACE_S = 0.2"
"""What is under way when a command is interrupted is not waited for."""


NOT_TYPED = {
    *("serve", "view", "runs delete", "runs import", "runs tag", "runs note"),
    *("data delete", "data download", "data split", "data sample"),
}
"""Commands that the matrix does not type: they print names and numbers, or have their own test."""


def test_the_matrix_types_every_command() -> None:
    source = Path(matrix.__file__).read_text("utf-8")
    typed = {words for words in ALL if ", ".join(f'"{word}"' for word in words) in source}
    assert {" ".join(words) for words in set(ALL) - typed} == NOT_TYPED, (
        "a command that shows what is stored has a row in LOOKS of tests/canary/matrix.py"
    )


def check(place: Place) -> None:
    assert place.search.hits == []
    assert {"stdout", "stderr", "database", "rows"} <= place.search.places.keys()
    assert place.search.size > 10_000


def answered(place: Place, sql: str) -> int:
    db = sqlite3.connect(place.folder / "grpo-practice.db")
    try:
        return int(db.execute(sql).fetchone()[0])
    finally:
        db.close()


def test_a_key_in_an_answer_is_nowhere_and_the_run_goes_on(tmp_path: Path) -> None:
    with serving(ECHOES["in its text"]) as server:
        place = Place(tmp_path / "p", server.url)
        for words in (
            ["data", "upload", "train.jsonl", "--name", "train"],
            ["practice", "--config", "c.yaml"],
            ["experiences", "list"],
            ["runs", "show", "toy", "--json"],
            ["export-agent"],
            ["export-agent", "-o", "a.md"],
            ["db", "backup", "copy.db"],
        ):
            assert place.type(*words) == 0, place.last
    place.finish()
    check(place)
    for column in ("lessons.text", "rollout_bodies.response", "experience_texts.text"):
        table = column.partition(".")[0]
        assert answered(place, f"SELECT count(*) FROM {table} WHERE {column} LIKE '%***%'"), column
    assert "***" in (place.folder / "a.md").read_text()
    assert {"database-wal", "database-shm"} <= place.search.places.keys()


@pytest.mark.long_after(1)
@pytest.mark.parametrize("echo", ["in the answer", "in a stream"])
def test_a_key_in_every_field_of_an_answer_is_nowhere(tmp_path: Path, echo: str) -> None:
    with serving(ECHOES[echo]) as server:
        place = Place(tmp_path / "p", server.url)
        assert place.type("eval", "--config", "c.yaml", "--verify", "judge", "--show") == 0
    place.finish()
    check(place)
    assert answered(place, "SELECT count(*) FROM rollout_bodies WHERE response LIKE '%***%'")
    finish = answered(place, "SELECT count(*) FROM calls WHERE finish LIKE '%***%'")
    assert bool(finish) is (echo == "in the answer")


@pytest.mark.long_after(1)
@pytest.mark.parametrize("echo", ["401", "500"])
def test_1_12_an_error_that_gives_the_key_back_shows_and_stores_none(
    tmp_path: Path, echo: str
) -> None:
    with serving(ECHOES[echo]) as server:
        place = Place(tmp_path / "p", server.url)
        place.type("eval", "--config", "c.yaml")
        place.type("--debug", "eval", "--config", "c.yaml", "--json")
        place.type("runs", "show", "toy/eval")
    place.finish()
    check(place)
    assert answered(place, "SELECT count(*) FROM failures WHERE message LIKE '%***%'") > 0


@pytest.mark.long_after(2)
@pytest.mark.parametrize(
    "echo",
    ["HTML", "stream without choices", "redirect", "headers", "broken JSON", "base64", "400"],
)
def test_1_30_a_broken_answer_that_holds_a_key_shows_and_stores_none(
    tmp_path: Path, echo: str
) -> None:
    with serving(ECHOES[echo]) as server:
        place = Place(tmp_path / "p", server.url)
        place.type("--debug", "eval", "--config", "c.yaml")
        assert len(server.asked) > 0
    place.finish()
    check(place)


@pytest.mark.long
@pytest.mark.parametrize("name", SCORED)
def test_1_54_a_verify_function_that_tells_the_environment_tells_no_key(
    tmp_path: Path, name: str
) -> None:
    function = f"score.py:{name}"
    with serving(lambda _: simulated()) as server:
        place = Place(tmp_path / "p", server.url)
        place.type("--debug", "eval", "--config", "c.yaml", "--verify", function, "--show")
        if name == "critique":
            rejudge = ["eval", "--rejudge", "--verify", "score.py:raises", "--run", CRITIQUE]
            assert place.type(*rejudge) == 1
    place.finish()
    check(place)
    told = "SELECT count(*) FROM rollouts WHERE error LIKE '%***%'"
    if name == "critique":
        told = "SELECT count(*) FROM verdicts WHERE critique LIKE '%***%' OR error LIKE '%***%'"
    if name != "prints":
        assert answered(place, told)


def test_1_54_a_verify_function_that_fails_on_each_gold_tells_no_key(tmp_path: Path) -> None:
    with serving(lambda _: simulated()) as server:
        place = Place(tmp_path / "p", server.url)
        words = ["--debug", "eval", "--config", "c.yaml", "--verify", "score.py:always"]
        assert place.type(*words) == 2
        assert not server.asked
    assert "***" in place.last
    place.finish()
    check(place)


@pytest.mark.long
def test_1_54_what_a_verify_function_prints_in_its_worker_holds_no_key(tmp_path: Path) -> None:
    place = Place(tmp_path / "p")
    words = ["verify", "score.py:prints", "--answer", "1", "--response", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "grpo_practice", *words],
        cwd=place.folder,
        # The socket of the worker's server stands there, and its name must be short.
        env=place.env | {"TMPDIR": tempfile.gettempdir()},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"'UTU_LLM_API_KEY': '***'" in done.stderr
    assert not keys_in(done.stdout + done.stderr)
    assert b"reward 1.000" in done.stdout


@pytest.mark.long
def test_2_42_a_key_where_none_belongs_is_not_shown(tmp_path: Path) -> None:
    place = Place(tmp_path / "p")
    for words in WRONG:
        assert place.type(*words) not in (0, 1), words
    assert place.type("doctor", "--json") == 2
    place.finish()
    check(place)


@pytest.mark.filterwarnings("ignore:.*deprecated and will be removed:DeprecationWarning")
def test_1_25_the_password_of_a_proxy_is_not_shown(tmp_path: Path) -> None:
    place = Place(tmp_path / "p", "https://api.example.invalid/v1")
    assert place.type("--debug", "eval", "--config", "c.yaml") == 3, place.last
    place.finish()
    check(place)
    assert "proxy" in place.last


@pytest.mark.long
def test_1_62_a_command_that_is_interrupted_leaves_no_key() -> None:
    # Not in a folder of pytest's: the worker's socket is below it, and may not have a long name.
    with tempfile.TemporaryDirectory() as folder, serving(lambda _: stall()) as server:
        place = Place(Path(folder) / "p", server.url)
        words = ["--debug", "eval", "--config", "c.yaml", "--base-url"]
        words.append(server.url.replace("://", f"://me:{keys.UNUSED}@"))
        words += ["--set", "agent.model.model_provider.api_key=null"]
        with subprocess.Popen(
            program(*words, first=HASTY),
            cwd=place.folder,
            env=place.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            until(lambda: server.asked, process)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 130, err
        place.search.look("stdout", "stdout", out)
        place.search.look("stderr", "stderr", err)
        place.finish()
        check(place)


def test_the_search_finds_a_key_in_every_place(tmp_path: Path) -> None:
    for key in keys.ALL.values():
        for text in (key, quote(key, safe=""), base64.b64encode(f"me:{key}".encode()).decode()):
            assert keys_in(f"x{text}x".encode())
        assert keys_in(key[:12].encode())
        assert not keys_in(key[:6].encode())
    db = sqlite3.connect(tmp_path / "x.db")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (a)")
    db.execute("INSERT INTO t VALUES (?)", (zlib.compress(keys.STUDENT.encode() * 9, 1),))
    db.commit()
    search = Search()
    search.files(tmp_path, [])
    db.close()
    assert {hit.partition(",")[0].partition(":")[0] for hit in search.hits} >= {"x.db-wal", "x.db"}
