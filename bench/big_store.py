"""A database of 1,000,000 rollouts: how long until a run goes on, and until a page is there.

One practice run holds a fifth of them, one evaluation the others. Both are begun by the real
commands; then the rows of a step that was played are copied to the steps after it, all but the
last. A resume is timed from the start of its process to its first request.
"""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from bench.harness import (
    Row,
    at_most,
    cli,
    endpoint,
    folder,
    seconds_to_first_request,
    write_config,
    write_tasks,
)

DATABASE = "grpo-practice.db"
RESUMES = ("eval", "practice")
PAGES = {
    "runs show bench/eval": "≤ 1",
    "runs show bench": "≤ 1",
    "export-agent --run bench": "≤ 1",
    "runs list": "",
    "experiences list --run bench": "",
}


class Size(NamedTuple):
    """How much of everything there is."""

    questions: int
    """Rollouts of the evaluation; 64 make a step."""
    k: int
    groups: int
    """Size of a step of the practice run; a step is an epoch."""
    g: int
    epochs: int


FULL, TINY = Size(12_500, 64, 50, 8, 500), Size(256, 4, 4, 2, 10)


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure the seconds until a resumed run's first request, and until pages are there."""
    size = TINY if tiny else FULL
    with folder() as here, endpoint() as url:
        built = build(here, url, size)
        found = [Row("big store: rollouts", "", [float(built)])]
        for command in RESUMES:
            words = (command, "--config", "c.yaml")
            taken = [seconds_to_first_request(here, url, *words) for _ in range(runs)]
            found.append(Row(f"big store: {command} resumes, s", "≤ 2", taken, at_most(2)))
        for page, target in PAGES.items():
            taken = [_seconds(here, page) for _ in range(runs)]
            reached = at_most(1) if target else None
            found.append(Row(f"big store: {page}, s", target, taken, reached))
    return found


def _seconds(here: Path, page: str) -> float:
    start = time.monotonic()
    cli(here, *page.split())
    return time.monotonic() - start


def build(here: Path, url: str, size: Size) -> int:
    """Make the database unless it is there; return how many rollouts it holds."""
    for name, n in (("tasks", size.questions), ("practice", size.groups)):
        write_tasks(here / f"{name}.jsonl", n)
        cli(here, "data", "upload", f"{name}.jsonl", "--name", name)
    _configure(here, url, size, epochs=2)
    cli(here, "practice", "--config", "c.yaml")
    cli(here, "eval", "--config", "c.yaml", "--limit", "64")
    _configure(here, url, size, epochs=size.epochs)  # all the others are planned
    cli(here, "practice", "--config", "c.yaml", "--pilot", "1")
    cli(here, "eval", "--config", "c.yaml", "--pilot", "1")
    with closing(sqlite3.connect(here / DATABASE, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        _copy_step(db, "bench", 1)
        _copy_step(db, "bench/eval", 0)
        db.execute("COMMIT")
        return int(db.execute("SELECT count(*) FROM rollouts").fetchone()[0])


def _configure(here: Path, url: str, size: Size, *, epochs: int) -> None:
    practice = {"epochs": epochs, "batch_size": size.groups, "grpo_n": size.g}
    write_config(
        here / "c.yaml",
        url,
        evaluation={"verify": "exact", "concurrency": 64, "pass_k": size.k},
        practice=practice | {"rollout_concurrency": 64, "do_eval": False},
        data={"practice_dataset_name": "practice"},
    )


def _copy_step(db: sqlite3.Connection, run: str, step: int) -> None:
    """Close the steps after this one, but the last, with rows like its own."""
    (branch,) = db.execute("SELECT head_branch FROM runs WHERE run_id = ?", (run,)).fetchone()
    for table in _TABLES:  # what the pilot left
        db.execute(f"DELETE FROM {table} AS old WHERE {_of(table, '>')}", (branch, step))
    db.execute(
        """CREATE TEMP TABLE slots AS SELECT step, slot.key AS slot, slot.value ->> 0 AS sample_id
             FROM steps, json_each(plan) AS slot WHERE branch_id = ? AND step > ?
              AND step < (SELECT max(step) FROM steps t WHERE t.branch_id = steps.branch_id)""",
        (branch, step),
    )
    db.execute("CREATE UNIQUE INDEX temp.slots_at ON slots (step, slot)")
    db.execute("CREATE TEMP TABLE others AS SELECT DISTINCT step FROM slots ORDER BY 1")
    strides = {
        key: db.execute(f"SELECT max({key}) + 1 FROM {table}").fetchone()[0]
        for table, key in (("rollouts", "rollout_id"), ("calls", "call_id"))
    }
    for table in reversed(_TABLES):
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        taken = [_taken(column, strides) for column in columns]
        db.execute(
            f"INSERT INTO {table} SELECT {', '.join(taken)} FROM others JOIN {table} old"
            f" WHERE {_of(table, '=')}",
            (branch, step),
        )
    db.execute(
        """UPDATE steps SET (status, library_in, library_out, stats, sums, closed_at) =
             (SELECT status, library_out, library_out, stats, sums, closed_at FROM steps old
               WHERE old.branch_id = steps.branch_id AND old.step = ?)
            WHERE branch_id = ? AND step IN (SELECT step FROM others)""",
        (step, branch),
    )
    db.execute("DROP TABLE slots")
    db.execute("DROP TABLE others")


_ROLLOUTS = "old.rollout_id IN (SELECT rollout_id FROM rollouts old WHERE {place})"
_TABLES = {
    "call_bodies": "old.call_id IN (SELECT call_id FROM calls old WHERE {place})",
    "calls": "{place}",
    "verdicts": _ROLLOUTS,
    "rollout_bodies": _ROLLOUTS,
    "rollouts": "{place}",
    "groups": "{place}",
}
"""Those that a step fills, children first, and which rows are of a branch's step."""


def _of(table: str, sign: str) -> str:
    return _TABLES[table].format(place=f"old.branch_id = ? AND old.step {sign} ?")


def _taken(column: str, strides: dict[str, int]) -> str:
    """Return the expression from which the copy of a row takes a column."""
    if column == "step":
        return "others.step"
    if column == "sample_id":
        return "(SELECT s.sample_id FROM slots s WHERE s.step = others.step AND s.slot = old.slot)"
    stride = strides.get(column.removeprefix("prev_"))
    return f"old.{column} + others.step * {stride}" if stride else f"old.{column}"
