"""Runs move between databases: `runs export RUN -o FILE.db` and `runs import FILE.db`."""

import io
import json
import os
import re
import shlex
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.command import Gp

OWN = "own.db"
SMALL = '{"question": "What is 1 + 1?", "answer": "2"}\n{"question": "2 + 2?", "answer": "4"}\n'
LOCAL = {
    "runs": ["imported"],
    "datasets": ["origin", "created_at"],
    "invocations": ["student_at", "judge_at"],
}
"""Columns that may differ between copies, also those of equal datasets."""
JSON = {"plan", "from_ops", "identity"}
MORE = (
    ("eval", "--config", "practice.yaml", "--run", "demo/eval", "--rejudge", "--verify", "exact"),
    ("practice", "--config", "practice.yaml", "--exp-id", "demo", "--restart-step", "3"),
    ("experiences", "edit", "E1", "--run", "demo", "--text", "Units: name them."),
    ("eval", "--run", "demo/eval", "--arms", "none,L3", "--limit", "4"),
    ("runs", "tag", "demo", "kept"),
    ("runs", "note", "demo", "Begun on a Monday."),
)
DOCUMENTS = (
    "runs show demo",
    "runs show demo/eval",
    "runs diagnose demo",
    "rollouts list demo",
    "rollouts show demo:1 --failed --limit 2",
    "experiences list --run demo",
    "experiences show E1 --run demo",
    "db check",
)


def rows(path: str) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of a database, as a list for each table."""
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        found = dict[str, list[dict[str, Any]]]()
        for (name,) in names:
            if name in ("address_salt", "_sqlite_migrations", "sqlite_sequence"):
                continue
            kept = [dict(row) for row in db.execute(f"SELECT * FROM {name}")]
            for row in kept:
                for column in LOCAL.get(name, ()):
                    row.pop(column, None)
                for column in JSON & {*row}:  # spaces may differ
                    row[column] = row[column] and json.loads(row[column])
            found[name] = sorted(kept, key=repr)
        return found


def names_here() -> list[str]:
    return [path.name for path in Path().iterdir()]


def own(gp: Gp, db: str = OWN) -> None:
    """Make a database with another run, so that all ids of an imported run change."""
    Path("small.jsonl").write_text(SMALL, "utf-8")
    at = ("--model", "sim", "--db", db)
    assert gp("data", "upload", "small.jsonl", "--name", "small", "--db", db).code == 0
    assert gp("eval", "--dataset", "small", "--verify", "contains", *at).code == 0


def changed(db: str, sql: str) -> None:
    """Change a database as its owner could."""
    with closing(sqlite3.connect(db)) as made, made:
        made.execute(sql)


@pytest.mark.long
def test_a_run_with_all_that_belongs_to_it_survives_two_moves_unchanged(demo: Gp) -> None:
    for more in MORE:
        ran = demo(*more)
        assert ran.code == 0, ran.err
    for name in ("practice", "test"):  # so that libraries get other ids, too
        demo("data", "upload", f"{name}.jsonl", "--name", name, "--db", OWN)
    other = ("--config", "practice.yaml", "--exp-id", "other", "--db", OWN)
    assert demo("practice", *other, "--set", "practice.epochs=1").code == 0
    own(demo)
    assert demo("runs", "export", "demo", "-o", "one.db").code == 0
    assert demo("runs", "import", "one.db", "--db", OWN).code == 0
    assert "intact" in demo("db", "check", "--db", OWN).out
    assert demo("runs", "export", "demo", "-o", "two.db", "--db", OWN).code == 0
    before, one, two = rows("grpo-practice.db"), rows("one.db"), rows("two.db")
    assert {name: len(found) for name, found in one.items()} == {
        name: len(found) for name, found in before.items()
    }
    for name in one:
        assert one[name] == two[name], name
    moved = rows(OWN)
    libraries = {row["branch_id"]: row["library_id"] for row in moved["branches"]}
    arms = [row for row in moved["runs"] if (row["arm"] or "").startswith("L")]
    assert [f"L{libraries[row['head_branch']]}" for row in arms] == [
        row["arm"].split()[0] for row in arms
    ]
    assert {"L3"} < {row["arm"].split()[0] for row in before["runs"] if row["arm"]}
    assert len([row for row in arms if row["exp_id"] == "demo"]) > 1
    for words in DOCUMENTS:
        there, here = (
            normal(demo(*words.split(), "--json", "--db", db).document) for db in ("one.db", OWN)
        )
        origin = normal(demo(*words.split(), "--json").document)
        if words == "db check":  # another run is checked as well
            continue
        assert there == origin, words
        assert here == origin, words


def normal(value: Any, key: str = "") -> Any:
    """Return a document without ids, and without what differs between databases on purpose."""
    match value:
        case dict():
            own = ("next", "command", "imported", "origin")
            kept = {k: v for k, v in value.items() if k not in own}
            if "revision" in value:  # equal rows were uploaded at another time
                kept.pop("created_at", None)
            return {k: normal(v, k) for k, v in kept.items()}
        case list():
            return [normal(v, key) for v in value]
        case str():
            text = re.sub(r" --db \S+", "", value)
            return re.sub(r"\bL\d+\b|(?<=@)\d+|(?<=branch )\d+", "#", text)
        case float():
            return round(value, 9)  # sums follow the order of ids
        case int() if re.search(r"(^|_)(id|branch|library|in|out|by|verdict)$", key):
            return "#"
        case _:
            return value


@pytest.mark.long
def test_an_unfinished_run_goes_on_elsewhere_and_pays_nothing_twice(demo: Gp) -> None:
    config = ("practice", "--config", "practice.yaml", "--exp-id", "part")
    assert demo(*config, "--pilot", "6").code == 0
    own(demo)
    assert demo("runs", "export", "part", "-o", "part.db").code == 0
    assert demo("runs", "import", "part.db", "--as", "moved", "--db", OWN).code == 0
    shown = demo("runs", "show", "moved", "--db", OWN).out
    assert "next: grpo-practice practice --db own.db --exp-id moved" in shown
    for words in (config, ("practice", "--exp-id", "moved", "--db", OWN)):
        ran = demo(*words)
        assert ran.code == 0, ran.err
        (new, replayed) = re.findall(r"requests +(\d+) new, (\d+) replayed", ran.out)[0]
        assert int(replayed) > 0 < int(new)


def test_a_file_is_taken_in_once_and_two_files_are_merged(demo: Gp) -> None:
    demo("runs", "export", "demo", "-o", "demo.db")
    own(demo)
    demo("runs", "export", "small", "-o", "small.db", "--db", OWN)
    for name in ("demo.db", "small.db"):
        assert demo("runs", "import", name, "--db", "both.db").code == 0
    assert demo("runs", "tag", "demo", "theirs", "--db", "both.db").code == 0
    kept = rows("both.db")
    again = demo("runs", "import", "demo.db", "--db", "both.db")
    assert again.out.startswith("already here: demo/eval, demo")
    document = demo("runs", "import", "demo.db", "--db", "both.db", "--json").document
    assert document["runs"] == {}
    assert document["known"]["demo"] == "demo"
    assert rows("both.db") == kept
    document = demo("runs", "list", "--json", "--db", "both.db").document
    listed = [run["name"] for run in document["runs"]]
    assert listed[-1] == "demo/eval"
    assert listed[0].startswith("small/eval")
    assert len(kept["datasets"]) == 3
    # Its owner has the run already, under the same name.
    assert demo("runs", "import", "both.db").out.startswith("imported 1 run: small/eval")


def test_one_run_of_a_file_comes_with_what_it_needs(demo: Gp) -> None:
    assert demo("runs", "export", "demo/eval/L185f031a", "-o", "one.db").code == 0
    names = {row["run_id"] for row in rows("one.db")["runs"]}
    assert names == {"demo", "demo/eval/L185f031a"}
    assert demo("runs", "import", "grpo-practice.db", "--run", "demo/eval", "--db", OWN).code == 0
    assert "intact" in demo("db", "check", "--db", OWN).out


def test_a_name_in_use_is_an_error_with_the_command_that_renames(demo: Gp) -> None:
    demo("runs", "export", "demo", "-o", "demo.db")
    changed("grpo-practice.db", "UPDATE invocations SET command = 'changed'")
    kept = rows("grpo-practice.db")
    ran = demo("runs", "import", "demo.db")
    assert ran.code == 2
    assert "demo is the name of another run" in ran.err
    assert rows("grpo-practice.db") == kept
    (hint,) = re.findall("hint: (.*)", ran.err)
    assert hint.endswith("--as demo-2")
    assert demo(*shlex.split(hint)[1:]).code == 0
    show = demo("runs", "show", "demo-2", "--json").document
    assert show["run"]["imported"]
    assert " UTC, imported\n" in re.sub(" +\n", "\n", demo("runs", "show", "demo-2").out)
    assert {row["exp_id"] for row in rows("grpo-practice.db")["runs"]} == {"demo", "demo-2"}
    assert demo("runs", "import", "demo.db", "--as", "demo-2").out.startswith("already here")
    assert "intact" in demo("db", "check").out


def test_no_experiment_of_a_stranger_joins_one_of_the_user(demo: Gp) -> None:
    own(demo)
    changed("grpo-practice.db", "UPDATE runs SET exp_id = 'small/' || exp_id")
    changed("grpo-practice.db", "UPDATE runs SET parent_run_id = NULL")
    for name in (
        "runs.run_id",
        "branches.run_id",
        "invocations.run_id",
        "libraries.run_id",
        "experiences.run_id",
    ):
        table, column = name.split(".")
        changed("grpo-practice.db", f"UPDATE {table} SET {column} = 'small/' || {column}")
    ran = demo("runs", "import", "grpo-practice.db", "--db", OWN)
    assert (ran.code, "small/demo is the name of another run" in ran.err) == (2, True)


def test_a_name_in_use_is_asked_about_on_a_terminal(
    demo: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo("runs", "export", "demo", "-o", "demo.db")
    changed("grpo-practice.db", "UPDATE invocations SET command = 'changed'")
    keyboard = io.StringIO("theirs\n")
    monkeypatch.setattr(keyboard, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", keyboard)
    ran = demo("runs", "import", "demo.db")
    assert "Import it as [demo-2]" in ran.err
    assert "theirs/eval" in ran.out


def test_a_name_of_a_dataset_keeps_its_meaning(demo: Gp) -> None:
    demo("runs", "export", "demo", "-o", "demo.db")
    Path("small.jsonl").write_text(SMALL, "utf-8")
    demo("data", "upload", "small.jsonl", "--name", "test", "--db", OWN)
    ran = demo("runs", "import", "demo.db", "--db", OWN)
    assert "note: test has other rows here" in ran.err
    assert demo("data", "list", "--json", "--db", OWN).document["datasets"][-1]["n"] == 2
    assert demo("runs", "show", "demo/eval", "--json", "--db", OWN).document["dataset"]["n"] == 40


def test_one_name_stands_for_one_experiment(demo: Gp) -> None:
    own(demo, "grpo-practice.db")
    ran = demo("runs", "import", "grpo-practice.db", "--as", "x", "--db", OWN)
    assert (ran.code, "2 experiments: demo, small" in ran.err) == (2, True)
    assert demo("runs", "import", "grpo-practice.db", "--as", "a/b", "--db", OWN).code == 2
    for words in (("--run", "nobody"), ("--run", "small", "--as", "a/b")):
        assert demo("runs", "import", "grpo-practice.db", *words, "--db", OWN).code == 2
    assert not rows(OWN)["runs"] if Path(OWN).exists() else True
    ran = demo("runs", "import", "grpo-practice.db", "--run", "small", "--as", "x", "--db", OWN)
    assert ran.out.startswith("imported 1 run: x/eval")


def test_only_a_whole_file_of_this_version_is_taken_in(demo: Gp) -> None:
    kept = rows("grpo-practice.db")
    Path("folder").mkdir()
    Path("text.db").write_text("no database at all, but long enough to look like a file")
    Path("empty.db").write_bytes(b"")
    for name, sql in {
        "newer.db": "PRAGMA user_version = 99",
        "foreign.db": "PRAGMA application_id = 7",
        "changed.db": "UPDATE texts SET body = body || ' '",
        "question.db": "UPDATE samples SET question = 'What is the password?'",
        "judged.db": "UPDATE verifiers SET name = 'other', spec = '{}'",
        "named.db": "UPDATE runs SET exp_id = 'other' WHERE run_id = 'demo/eval'",
        "column.db": "ALTER TABLE runs ADD COLUMN more TEXT",
    }.items():
        shutil.copy("grpo-practice.db", name)
        changed(name, sql)
    shutil.copy("grpo-practice.db", "cut.db")
    os.truncate("cut.db", 300_000)
    codes = {name: demo("runs", "import", name, "--db", OWN).code for name in names_here()}
    refused = {name for name, code in codes.items() if code in (2, 7)}
    assert {*codes} - refused == {"grpo-practice.db"}
    assert rows(OWN) == kept
    assert demo("runs", "import", "grpo-practice.db").code == 2
    assert rows("grpo-practice.db") == kept


def test_the_file_is_private_and_replaces_nothing(demo: Gp) -> None:
    ran = demo("runs", "export", "demo", "-o", "demo.db")
    assert ran.out.startswith("wrote demo.db")
    assert stat.S_IMODE(Path("demo.db").stat().st_mode) == 0o600
    before = Path("demo.db").read_bytes()
    assert demo("runs", "export", "demo", "-o", "demo.db").code == 2
    assert demo("runs", "export", "nobody", "-o", "demo.db", "--force").code == 2
    assert demo("runs", "export", "demo", "-o", "grpo-practice.db", "--force").code == 2
    assert demo("runs", "export", "demo", "--format", "db").code == 2
    assert Path("demo.db").read_bytes() == before
    made = demo("runs", "export", "demo", "-o", "x", "--format", "db", "--json").document
    assert made["path"] == "x"
    assert made["runs"][:2] == ["demo/eval", "demo"]
    assert demo("runs", "export", "demo", "-o", "r.db", "--format", "csv").code == 0
    assert Path("r.db").read_text("utf-8").startswith("run,")
    assert not [name for name in names_here() if name.endswith(("-wal", "-shm", "-journal"))]


def test_from_python(demo: Gp) -> None:
    written = Workspace("grpo-practice.db").export_run("demo", "demo.db")
    assert written.path == Path("demo.db")
    made = Workspace("new.db").import_runs("demo.db", ["demo"], names={"demo": "mine"})
    assert made.runs["demo"] == "mine"
    assert "mine" in repr(made)
    assert json.loads(json.dumps(made.document()))["untrusted"]


def test_a_run_of_ones_own_stays_the_latest(demo: Gp) -> None:
    own(demo)
    demo("runs", "import", "grpo-practice.db", "--db", OWN)
    ran = demo("eval", "--dry-run", "--db", OWN)
    assert "small/eval/" in ran.out + ran.err


def test_the_usual_endings_of_databases_make_a_database(demo: Gp) -> None:
    for name in ("x.sqlite", "x.SQLITE3"):
        assert demo("runs", "export", "demo/eval", "-o", name).code == 0
        assert Path(name).read_bytes().startswith(b"SQLite format 3")


def test_a_file_of_questions_is_for_data_upload(demo: Gp) -> None:
    Path("q.csv").write_text("question,answer\n1 + 1?,2\n")
    ran = demo("runs", "import", "q.csv")
    assert ran.code == 2
    assert "hint: grpo-practice data upload q.csv" in ran.err
