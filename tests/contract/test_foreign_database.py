"""A database of a stranger that would keep a command busy for ever, or whose types lie."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.contract.help import listed

DB = "grpo-practice.db"
ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT"
CHANGES = {
    "a branch that descends from itself": "UPDATE branches SET parent_id = branch_id",
    "branches in a circle": """UPDATE branches SET parent_id =
        CASE branch_id WHEN 1 THEN (SELECT max(branch_id) FROM branches) ELSE branch_id - 1 END""",
    "branches whose answers go in a circle": "UPDATE branches SET rebinds = branch_id",
    "a library that descends from itself": "UPDATE libraries SET parent_id = library_id",
    "a view without end": f"""DROP VIEW v_line; CREATE VIEW v_line AS {ENDLESS} 'demo' AS run_id,
        1 AS branch_id, 0 AS from_step, 9 AS to_step FROM x""",
    "a table in place of a view": "DROP VIEW v_steps; CREATE TABLE v_steps AS SELECT * FROM steps",
    "a table that is not strict": """PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = 'experiences'""",
    "a trigger": """CREATE TRIGGER more AFTER INSERT ON runs BEGIN
        UPDATE runs SET head_branch = 1; END""",
}
COMMANDS = (
    ("runs", "list"),
    ("runs", "show", "demo"),
    ("report", "demo", "-o", "r.html"),
    ("experiences", "list"),
    ("rollouts", "list", "demo"),
    ("export-agent", "--run", "demo", "-o", "a.yaml"),
    ("view", "--port", "0"),
)


def change(sql: str) -> None:
    """Change the database as its owner could, past its triggers."""
    with sqlite3.connect(DB) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        kept = triggers.fetchall()
        for name, _ in kept:
            db.execute(f'DROP TRIGGER "{name}"')
        db.executescript(f"PRAGMA foreign_keys = OFF; {sql}")
        for _, made in kept:
            db.execute(made)
    db.close()


@pytest.mark.long_after(3)
@pytest.mark.parametrize("sql", CHANGES.values(), ids=CHANGES)
def test_each_command_refuses_it_at_once_and_the_check_says_why(demo: Gp, sql: str) -> None:
    change(sql)
    for words in COMMANDS:
        if words[0] not in listed():  # without its slice
            continue
        ran = demo(*words)
        assert ran.code == 7, (words, ran)
        assert f"the database {DB} is not a valid database of this program: " in ran.err
        assert "hint: to see the details: grpo-practice db check" in ran.err
    checked = demo("db", "check", "--json")
    assert checked.code == 7
    findings = json.loads(checked.out)["checks"]
    assert findings[-1]["wrong"], "nothing else is read afterwards"
    assert not any(finding["wrong"] for finding in findings[:-1])


def test_tables_and_views_of_the_user_are_no_harm(demo: Gp) -> None:
    with sqlite3.connect(DB) as db:
        db.execute("CREATE TABLE notes (run_id TEXT, text TEXT)")
        db.execute("CREATE VIEW noted AS SELECT * FROM runs JOIN notes USING (run_id)")
        db.execute("CREATE INDEX by_run ON notes (run_id)")
    db.close()
    assert demo("runs", "show", "demo").code == 0
    assert demo("db", "check").code == 0
    assert Path(DB).exists()
