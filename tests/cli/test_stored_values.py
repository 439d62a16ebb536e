"""`db check` refuses values that no version of this program stores, whoever wrote them."""

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from random import Random

import pytest

from grpo_practice import Workspace
from grpo_practice.store.check import check
from grpo_practice.store.stored_values import StepStats
from grpo_practice.store.typed_rows import our_columns
from tests.contract.command import Gp

DB = "grpo-practice.db"
DEEP = '{"a":' * 900 + "1" + "}" * 900
FAULTS = {
    """UPDATE steps SET sums = '{"a": [1, 2]}'""": "steps.sums cannot be read",
    "UPDATE steps SET sums = replace(sums, ', 0', ', -1')": "steps.sums cannot be read",
    """UPDATE steps SET stats = '{"mean_reward": "x"}'""": "steps.stats cannot be read",
    """UPDATE steps SET stats = '{"groups": {"uniform": 1e18}}'""": "steps.stats cannot be read",
    """UPDATE steps SET stats = '{"scored": 1}'""": "steps.stats cannot be read",
    """UPDATE steps SET plan = '["a", {}]'""": "steps.plan cannot be read",
    """UPDATE steps SET plan = '[[1]]'""": "steps.plan cannot be read",
    """UPDATE groups SET parts = '[1, "x"]'""": "groups.parts cannot be read",
    """UPDATE rollouts SET left_out = '[{}]'""": "rollouts.left_out cannot be read",
    """UPDATE operations SET domains = '[1]'""": "operations.domains cannot be read",
    """UPDATE operations SET from_ops = '["x"]'""": "operations.from_ops cannot be read",
    "UPDATE rollout_bodies SET messages = '[]'": "rollout_bodies.messages cannot be read",
    """UPDATE samples SET meta = '{"a": NaN}'""": "samples.meta cannot be read",
    "UPDATE samples SET answer = '1e999'": "samples.answer cannot be read",
    f"UPDATE samples SET meta = '{DEEP}'": "samples.meta cannot be read",
    """UPDATE branches SET prompts = '{"merge": "zz"}'""": "branches.prompts cannot be read",
    "UPDATE verifiers SET spec = '[]'": "verifiers.spec cannot be read",
    "UPDATE branches SET identity = '{}'": "practice.overlap is None",
    "UPDATE branches SET identity = replace(identity, '\"demo_agent\"', '{}')": "name is {}",
    "UPDATE groups SET scored = -1": "groups.scored cannot be -1",
    "UPDATE groups SET scored = 0": "the numbers of a group do not go together",
    "UPDATE groups SET mean_reward = 7": "the numbers of a group do not go together",
    "UPDATE calls SET turn = 1 << 50 WHERE call_id = 1": "calls.turn cannot be 1125899906842624",
    "UPDATE branches SET dataset_id = NULL": "its dataset, verify function or k is missing",
    "UPDATE runs SET note = printf('%.*c', 500000, 'x')": "the note has 500,000 characters",
    "UPDATE runs SET note = char(27)": "a note has no control characters",
    "UPDATE runs SET tags = 'a,b'": "a tag is one word",
    "UPDATE runs SET tags = 'a a'": "at most 20 tags, each once",
    "UPDATE runs SET arm = printf('%.*c', 2001, 'x')": "the name of an arm has at most 2,000",
    "UPDATE runs SET parent_run_id = iif(run_id = 'demo', 'demo/eval', 'demo')": "from itself",
    "UPDATE calls SET prev_call_id = call_id + 1 WHERE call_id = 1": "call_id 1 continues 2",
    "UPDATE operations SET decides = op_id": "op_id 1 decides on 1",
    "UPDATE operations SET from_ops = json_array(op_id)": "op_id 1 was merged from 1",
    "UPDATE experiences SET origin_id = experience_id": "experience_id 1 comes from 1",
    "UPDATE steps SET played_by = branch_id": "was played by",
    "UPDATE rollouts SET library_id = 3 WHERE branch_id = 1": "of run demo/eval belongs to run",
    "UPDATE branches SET tip_library = 3 WHERE branch_id = 1": "of run demo/eval belongs to run",
    "UPDATE invocations SET branch_id = 2": "invocations.branch_id of run demo/eval belongs to",
    "CREATE TRIGGER x AFTER INSERT ON _sqlite_migrations BEGIN SELECT 1; END": "trigger x on",
    "CREATE TRIGGER x AFTER INSERT ON RUNS BEGIN SELECT 1; END": "trigger x on",
    "CREATE UNIQUE INDEX x ON _sqlite_migrations (name)": "index x on",
}


def problems(path: Path) -> list[str]:
    return [text for found in check(path) for text in found.wrong]


@pytest.mark.long_after(3)
@pytest.mark.parametrize(("change", "said"), FAULTS.items())
def test_a_value_of_the_wrong_shape_is_a_problem(demo: Gp, change: str, said: str) -> None:
    path = Path(DB)
    assert problems(path) == []
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(change)
    found = problems(path)
    assert any(said in text for text in found), found


def test_every_stored_key_of_stats_is_checked(demo: Gp) -> None:
    """A key that is added to the stats needs a type, too."""
    with closing(sqlite3.connect(DB)) as db:
        stored = {
            key for (stats,) in db.execute("SELECT stats FROM steps") for key in json.loads(stats)
        }
    assert stored <= set(StepStats.__slots__)


@pytest.mark.parametrize("change", ["PRAGMA user_version = 0", "UPDATE runs SET note = x'ff80'"])
def test_an_import_names_the_file_that_the_user_named(demo: Gp, change: str) -> None:
    Path(DB).rename("theirs.db")
    with closing(sqlite3.connect("theirs.db", isolation_level=None)) as db:
        db.execute(change.replace("x'ff80'", "CAST(x'ff80' AS TEXT)"))
    outcome = demo("runs", "import", "theirs.db")
    assert outcome.code == 7
    assert "theirs.db" in outcome.err
    assert "copy.db" not in outcome.err


def test_an_imported_run_is_marked(demo: Gp) -> None:
    demo("runs", "export", "demo", "-o", "theirs.db")
    demo("runs", "import", "theirs.db", "--as", "other")
    shown = demo("runs", "list").out
    assert "other (simulated) (imported)" in shown or "other (imported)" in shown
    assert "demo (imported)" not in shown
    assert "imported" in demo("runs", "show", "other").out


PLANTED: tuple[object, ...] = (
    None, "", "{}", "[]", '"x"', "[[1, 999999999999]]", "M" * 1_000_000, "2026-01-01",
    2**63 - 1, 10**12, -1, 0, 2, 1.5, 1e300,
)  # fmt: skip
LOOKS = (
    ("runs", "list"),
    ("runs", "show", "demo"),
    ("runs", "compare", "demo/eval", "demo"),
    ("runs", "diagnose", "demo"),
    ("experiences", "list", "--run", "demo"),
    ("report", "demo", "-o", "r.html", "--force"),
    ("db", "check"),
)


@pytest.mark.long
def test_an_import_is_refused_or_leaves_all_commands_working(demo: Gp) -> None:
    """Plant values of all kinds in columns drawn by chance, the same ones each time."""
    demo("runs", "export", "demo", "-o", "whole.db")
    with closing(sqlite3.connect("whole.db")) as db:
        columns = [(table, column) for table, column, *_ in our_columns(db)]
    for (table, column), value in Random(2).sample([*product(columns, PLANTED)], 30):
        Path(DB).unlink(missing_ok=True)
        shutil.copy("whole.db", "theirs.db")
        with closing(sqlite3.connect("theirs.db", isolation_level=None)) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            with suppress(sqlite3.Error):  # a column that takes no such value
                db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
        case = f"{table}.{column} = {str(value)[:30]!r}"
        outcome = demo("runs", "import", "theirs.db")
        assert outcome.code in (0, 2, 7), (case, outcome.err)
        if outcome.code:
            assert not Path(DB).exists() or not Workspace(DB).runs().runs, case
            continue
        for words in LOOKS:
            ran = demo(*words)
            refused = words[1] == "compare" and ran.code == 2
            assert ran.code == 0 or refused, (case, words, ran.err)
            assert len(ran.out) < 100_000, (case, words)
