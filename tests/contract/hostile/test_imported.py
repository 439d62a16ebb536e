"""A stranger's run stays a stranger's when it is imported into the user's own database."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.hostile import databases
from tests.contract.hostile.agent_files import UTU
from tests.contract.hostile.place import Place
from tests.contract.hostile.planted import ROWS, shell
from tests.contract.hostile.test_trust import refused

THEIRS = "theirs.db"
OWN_RUN = ("eval", "--dataset", "own", "--verify", "exact", "--model", "sim", "--exp-id", "own")
ASKING = {
    "eval": ("eval", "--run", "toy/eval", "--restart-step", "0"),
    "eval of the practice run": ("eval", "--run", "toy"),
    "practice": ("practice", "--exp-id", "toy", "--restart-step", "0"),
    "practice from its library": ("practice", "--from", "toy", "--exp-id", "more"),
    "rejudge": ("eval", "--rejudge", "--run", "toy/eval", "--verify", "contains"),
    "dry run": ("practice", "--exp-id", "toy", "--dry-run"),
}
COMMAND = databases.stored(more="type: command\ncommand: ./run\n")


def imported(place: Place, config: str, *more: str) -> None:
    """Take a stranger's run into a database of the user's, in a folder that the user trusts."""
    databases.given(place, config)
    (place.folder / databases.DB).rename(place.folder / THEIRS)
    place.put("run", shell(place.mark, "run"), runs=True)
    place.module("planted.py", "def solve(*_):\n    return 1\n")
    place.put("own.jsonl", ROWS)
    assert place.type("trust", ".").code == 0
    assert place.type("data", "upload", "own.jsonl", "--name", "own").code == 0
    assert place.type(*OWN_RUN).code == 0
    outcome = place.type("runs", "import", THEIRS, *more)
    assert (outcome.code, outcome.ran, outcome.left, outcome.asked) == (0, [], [], 0), outcome.shown
    assert "grpo-practice trust theirs.db" in outcome.shown


@pytest.mark.long
def test_what_would_be_trusted_is_shown_before_and_withdrawn_after(place: Place) -> None:
    imported(place, COMMAND)
    for said in (
        place.type("runs", "import", THEIRS, "--as", "again").shown,
        place.type("export-agent", "--run", "toy").shown,
    ):
        words = re.findall(r"grpo-practice (report \S+) writes", " ".join(said.split()))[0].split()
        page = place.type(*words, "-o", "-")
        assert "command: ./run" in page.shown
        assert page.ran == []
    assert place.type("trust", THEIRS).code == 0
    assert place.type("export-agent", "--run", "toy", "-o", "a.yaml").code == 0
    kept = re.findall("delete the lines that name it from (.*)$", place.type("trust").shown)[0]
    lines = Path(kept).read_text("utf-8").splitlines(keepends=True)
    Path(kept).write_text("".join(line for line in lines if THEIRS not in line), "utf-8")
    assert place.type("export-agent", "--run", "toy", "-o", "b.yaml").code == 2


@pytest.mark.parametrize("words", ASKING.values(), ids=ASKING)
def test_it_starts_no_program_in_a_trusted_folder(place: Place, words: tuple[str, ...]) -> None:
    imported(place, COMMAND)
    refused(place.type(*words), "command", "which a file from someone else may not do", "--trust")


@pytest.mark.long_after(1)
@pytest.mark.parametrize(
    "config",
    [
        databases.stored(verify="planted.py:solve"),
        databases.stored(more="toolkits: {python_executor: {config: {backend: subprocess}}}"),
        databases.stored("api_key: '***'"),
        databases.stored(f"api_key: '{UTU}'"),
        databases.stored(rest=", prompts_dir: '@HOME@/.config/gh'"),
    ],
)
def test_it_reads_no_file_and_gets_no_key(place: Place, config: str) -> None:
    imported(place, config)
    refused(place.type("practice", "--exp-id", "toy", "--restart-step", "0"))


def test_another_name_and_another_move_give_it_no_trust(place: Place) -> None:
    imported(place, COMMAND, "--as", "mine")
    refused(place.type("practice", "--exp-id", "mine", "--restart-step", "0"), "--trust")
    assert place.type("runs", "export", "mine", "-o", "again.db").code == 0
    (place.folder / databases.DB).unlink()
    shutil.copy(place.folder / "again.db", place.folder / databases.DB)
    for db in ("again.db", databases.DB):
        refused(place.type("practice", "--db", db, "--restart-step", "0"), "--trust")


def test_no_agent_is_exported_from_it(place: Place) -> None:
    """The file could lie in a folder that the user trusts."""
    agent = '{"evaluation.agent.type": "command", "evaluation.agent.command": ["./run"]}'
    databases.given(place, COMMAND, agent=agent)
    imported_again = place.folder / databases.DB
    imported_again.rename(place.folder / THEIRS)
    place.put("run", shell(place.mark, "run"), runs=True)
    assert place.type("trust", ".").code == 0
    assert place.type("runs", "import", THEIRS).code == 0
    outcome = place.type("export-agent", "--run", "toy", "-o", "agent.yaml")
    assert outcome.code == 2
    assert "grpo-practice trust" in outcome.shown
    assert not (place.folder / "agent.yaml").exists()
    assert place.type("trust", THEIRS).code == 0
    assert place.type("export-agent", "--run", "toy", "-o", "agent.yaml").code == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE branches SET base_dir = CAST(x'2fff80' AS TEXT)", "decode"),
        ("UPDATE branches SET base_dir = '/x' || char(0) || 'y'", "is no folder"),
        ("UPDATE runs SET exp_id = 'demo:2'", "is no name of a run"),
        ("UPDATE runs SET exp_id = '--db=x'", "is no name of a run"),
        ("UPDATE runs SET exp_id = 'x' || char(10) || 'next: y'", "is no name of a run"),
    ],
)
def test_a_file_that_would_break_or_hide_runs_here_is_refused(
    place: Place, change: str, said: str
) -> None:
    databases.given(place, COMMAND)
    with closing(sqlite3.connect(place.folder / databases.DB)) as db, db:
        db.execute(change)
    (place.folder / databases.DB).rename(place.folder / THEIRS)
    outcome = place.type("runs", "import", THEIRS)
    assert outcome.code == 7
    assert said in outcome.shown
    assert not (place.folder / databases.DB).exists()


def test_commands_that_name_no_run_use_the_user_s_own(place: Place) -> None:
    imported(place, COMMAND)
    for words in (("eval",), ("config", "show"), ("practice",), ("eval", "--arms", "none,full")):
        outcome = place.type(*words)
        assert "--trust" not in outcome.shown, outcome.shown
        assert not outcome.ran
    assert "there is no run to resume" in place.type("practice").shown
    assert "toy" in place.type("experiences", "list").shown  # a look needs no word


def test_no_command_of_a_stranger_is_suggested(place: Place) -> None:
    databases.given(place, COMMAND)
    with closing(sqlite3.connect(place.folder / databases.DB)) as db, db:
        db.execute("UPDATE invocations SET command = 'grpo-practice demo; echo gotcha'")
        db.execute("UPDATE runs SET status = 'stopped'")
        db.execute("UPDATE steps SET status = 'open', closed_at = NULL WHERE library_out NOTNULL")
    (place.folder / databases.DB).rename(place.folder / THEIRS)
    outcome = place.type("runs", "import", THEIRS)
    for words in (("runs", "show", "toy"), ("runs", "diagnose", "toy"), ("runs", "list")):
        outcome = place.type(*words)
        assert "gotcha" not in outcome.shown


def test_the_word_for_the_file_is_the_word_for_its_runs(place: Place) -> None:
    imported(place, COMMAND)
    assert place.type("trust", THEIRS).code == 0
    outcome = place.type("practice", "--exp-id", "toy", "--restart-step", "0")
    assert "run" in outcome.ran, outcome.shown


def test_the_word_for_one_s_own_database_covers_its_runs(place: Place) -> None:
    imported(place, COMMAND)
    words = ("practice", "--exp-id", "toy", "--restart-step", "0", "--trust", databases.DB)
    assert "run" in place.type(*words).ran
