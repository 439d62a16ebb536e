"""What was paid for and what was learnt is written once: the database itself refuses a change."""

import sqlite3
from pathlib import Path

import pytest

from tests.run.project import Project

FROZEN = ("calls", "call_bodies", "libraries", "library_items", "experience_texts")


def freeze(db: Path) -> None:
    """From now on an UPDATE or a DELETE where only inserts belong is an error."""
    connection = sqlite3.connect(db)
    changes = [f"{verb} ON {table}" for table in FROZEN for verb in ("UPDATE", "DELETE")]
    changes.append("DELETE ON operations")
    columns = [row[1] for row in connection.execute("PRAGMA table_info(operations)")]
    changes.append(f"UPDATE OF {', '.join(c for c in columns if c != 'status')} ON operations")
    for n, change in enumerate(changes):
        connection.execute(
            f"CREATE TRIGGER frozen_{n} BEFORE {change}"
            f" BEGIN SELECT RAISE(ABORT, 'not insert-only: {change}'); END"
        )
    connection.commit()
    connection.close()


async def test_a_whole_practice_its_restart_and_its_evaluations_only_insert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "grpo_practice.store.db.check_shape", lambda *_: None
    )  # it refuses triggers of others
    project = Project(tmp_path)
    freeze(project.db)
    await project.practise("practice.do_eval=true")
    await project.practise("practice.do_eval=true", restart_step=2)
    made = "SELECT count(*) FROM operations WHERE source = 'merge' AND result_id IS NOT NULL"
    assert project.query(made)[0][0] > 0


async def test_an_operation_knows_what_it_came_from_and_what_it_made(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.practise()
    rows = project.query(
        """SELECT o.op, o.from_ops, t.text IS NULL OR t.text = o.text, l.cause
             FROM operations o LEFT JOIN experience_texts t USING (op_id)
             LEFT JOIN libraries l USING (library_id)
            WHERE o.source = 'merge' AND o.status = 'applied'"""
    )
    assert rows
    made = [row for row in rows if row[0] in ("ADD", "UPDATE")]
    assert all(same and cause == "merge" for _, _, same, cause in made)
    named = project.query(
        """SELECT p.source FROM operations o, json_each(o.from_ops) j
             JOIN operations p ON p.op_id = j.value WHERE o.source = 'merge'"""
    )
    assert named
    assert {source for (source,) in named} == {"propose"}
