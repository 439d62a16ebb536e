"""Lists of rollouts: what they read, how wide they are, and what they hint at."""

import re
import shlex
import sqlite3
from pathlib import Path

import pytest
from rich.cells import cell_len

from grpo_practice.cli.terminal.consoles import out
from grpo_practice.reports.rollout_report import (
    RolloutsReport,
    TranscriptsReport,
    show_command,
)
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import rollout_list, runs
from grpo_practice.store.queries.rollout_list import Counted, RolloutRow, Wanted
from tests.cli.conftest import Gp
from tests.contract.project import DB, change
from tests.contract.test_rollouts import last_library, rows_of

END = re.compile(r": |^\d+ of ")
"""Beginning of the lines below a table."""


def test_a_list_reads_no_body(demo: Gp) -> None:
    name, tables = last_library(demo), set[str | None]()

    def note(action: int, table: str | None, *_: object) -> int:
        tables.add(table if action == sqlite3.SQLITE_READ else None)
        return sqlite3.SQLITE_OK

    def listed(db: sqlite3.Connection) -> list[RolloutRow]:
        branch = branches.load(db, runs.get(db, name).head_branch or 0)
        db.set_authorizer(note)
        wanted = Wanted(failed=True, samples=set(rollout_list.question_means(db, branch)))
        rollout_list.count_wanted(db, branch, wanted)
        assert [*rollout_list.wanted_groups(db, branch, wanted, 5)]
        return rollout_list.rollout_page(db, branch, rollout_list.FIRST, 5, wanted)

    with Store(Path(DB)) as store:
        assert len(store.read(listed)) == 5
    assert {"rollouts", "verdicts"} <= tables
    assert not {"rollout_bodies", "calls", "call_bodies", "texts"} & tables


def test_so_many_are_never_hinted_at_that_the_command_refuses(gp: Gp) -> None:
    counted = Counted(rollouts=2_000_000, groups=500_000)
    listed = RolloutsReport("r", None, [], counted, counted, filters=" --failed")
    assert listed.more_command == "grpo-practice rollouts list r --failed --limit 1000000"
    shown = TranscriptsReport(listed, [])
    assert shown.more_command == "grpo-practice rollouts show r --failed --limit 10000"
    assert show_command("r", 500_000) == "grpo-practice rollouts show r --limit 10000"
    for command in (listed.more_command, shown.more_command):
        ran = gp(*shlex.split(command)[1:])
        assert "there is no database" in ran.err  # and not: the number is out of range


@pytest.mark.parametrize("width", ["80", "120"])
@pytest.mark.parametrize(
    "words", [("runs", "list"), ("rollouts", "list", "demo"), ("rollouts", "list", "LAST", "-F")]
)
def test_no_table_is_wider_than_the_terminal(
    demo: Gp, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], width: str
) -> None:
    last = last_library(demo)
    typed = [{"LAST": last, "-F": "--flipped"}.get(word, word) for word in words]
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(out, "_width", int(width))  # the console of an earlier test has its own
    lines = demo(*typed).out.splitlines()
    table = lines[: next(i for i, x in enumerate(lines) if END.search(x))]
    assert all(len(line) <= int(width) for line in table)
    if words[0] == "rollouts":  # one line each, also of characters that take two columns
        change("UPDATE samples SET question = '林檎は全部で幾つありますか、' || question")
        lines = demo(*typed).out.splitlines()
        table = lines[: next(i for i, x in enumerate(lines) if END.search(x))]
        assert all(cell_len(line) <= int(width) for line in table)
        assert len(table) == 1 + len(rows_of(demo, typed[2], *typed[3:])[:50])
