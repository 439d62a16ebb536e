"""Plans: the samples that each step plays, stored before anything is played."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from grpo_practice.core.types import PlannedStep
from grpo_practice.store import step_totals
from grpo_practice.store.branches import rows_on_line, sums_on_line
from grpo_practice.store.db import Row, insert, insert_all, now
from grpo_practice.store.records import Branch, StepRow

_OF_SEGMENT = "WHERE branch_id = ? AND step >= ? AND step < ?"


def planned(branch: Branch, rows: Sequence[StepRow], steps: Iterable[PlannedStep]) -> list[StepRow]:
    """Return the rows of a branch's line with these steps planned; existing plans can only grow.

    More attempts for a slot (a larger `pass_k`) reopen the step.
    """
    found = {row.plan.step: row for row in rows}
    for step in steps:
        # The parent holds these steps, so a row of this branch would not be on any line.
        if step.step < branch.from_step:
            continue
        row = found.get(step.step)
        if row is None:
            found[step.step] = StepRow(branch.id, step, "planned")
        elif row.plan.slots != step.slots:
            # Its stats do not cover the new attempts, and a closed step would never be played.
            grown = replace(row.plan, slots=step.slots)
            found[step.step] = replace(row, plan=grown, status="open", stats=None)
    return [found[step] for step in sorted(found)]


def plan(
    db: sqlite3.Connection, branch: Branch, rows: Sequence[StepRow], steps: Iterable[PlannedStep]
) -> None:
    """Store the steps that `planned` returns; `rows` are the steps of the branch's line."""
    before = {row.plan.step: row for row in rows}
    for row in planned(branch, rows, steps):
        known = before.get(row.plan.step)
        if known is None:
            insert(db, "steps", _planned(branch, row.plan))
        elif known != row:
            # closed_at stays: a step that was once closed binds the run to its configuration.
            # stats and sums are cleared, since they do not cover the new attempts.
            db.execute(
                """UPDATE steps SET plan = ?, status = 'open', stats = NULL, sums = NULL
                    WHERE branch_id = ? AND step = ?""",
                (json.dumps(row.plan.slots), branch.id, row.plan.step),
            )


def play_elsewhere(
    db: sqlite3.Connection, branch: Branch, steps: Iterable[tuple[PlannedStep, int]]
) -> None:
    """Insert steps that only add verdicts, because their rollouts belong to another branch."""
    rows = [{**_planned(branch, step), "played_by": held_by} for step, held_by in steps]
    insert_all(db, "steps", rows, more="ON CONFLICT DO NOTHING")


def _planned(branch: Branch, step: PlannedStep) -> Row:
    return {
        "branch_id": branch.id,
        "step": step.step,
        "epoch": step.epoch,
        "batch": step.batch,
        "plan": json.dumps(step.slots),
        "status": "planned",
    }


def on_line(db: sqlite3.Connection, branch: Branch) -> list[StepRow]:
    """Return the steps of a branch's line, in order."""
    found = rows_on_line(db, branch, f"SELECT * FROM steps {_OF_SEGMENT}")
    return sorted(map(row_of, found), key=lambda s: s.plan.step)


def one_on_line(db: sqlite3.Connection, branch: Branch, step: int) -> StepRow | None:
    """Return one step of a branch's line; None if it is not planned."""
    row = db.execute(
        "SELECT * FROM steps WHERE branch_id = ? AND step = ?", (branch.holder(step), step)
    ).fetchone()
    return row_of(row) if row else None


def last(db: sqlite3.Connection, branch: Branch) -> int | None:
    """Return the number of the last planned step on a branch's line; None without a plan."""
    found = rows_on_line(db, branch, f"SELECT max(step) FROM steps {_OF_SEGMENT}")
    return max((step for (step,) in found if step is not None), default=None)


def planned_slots(db: sqlite3.Connection, branch: Branch) -> tuple[int, set[int]]:
    """Return the number of groups planned on a branch's line, and the samples with no attempts."""
    (planned,) = sums_on_line(
        db, branch, f"SELECT coalesce(sum(json_array_length(plan)), 0) FROM steps {_OF_SEGMENT}"
    )
    unasked = rows_on_line(
        db,
        branch,
        f"""SELECT json_extract(slot.value, '$[0]') FROM steps, json_each(plan) AS slot
            {_OF_SEGMENT} AND json_extract(slot.value, '$[1]') = 0""",
    )
    return planned, {sample for (sample,) in unasked}


def row_of(row: sqlite3.Row) -> StepRow:
    """Return a row of `steps` as a value."""
    slots = tuple((sample, attempts) for sample, attempts in json.loads(row["plan"]))
    return StepRow(
        branch_id=row["branch_id"],
        plan=PlannedStep(row["step"], row["epoch"], row["batch"], slots),
        status=row["status"],
        library_in=row["library_in"],
        library_out=row["library_out"],
        played_by=row["played_by"],
        stats=json.loads(row["stats"]) if row["stats"] else None,
    )


def open_step(db: sqlite3.Connection, branch_id: int, step: int, library_id: int | None) -> None:
    """Mark the step as open, with this library."""
    db.execute(
        # Never reopens a closed step; only `plan` does that, when a step grows.
        """UPDATE steps SET status = 'open', library_in = ?
            WHERE branch_id = ? AND step = ? AND status IN ('planned', 'open', 'stopped')""",
        (library_id, branch_id, step),
    )


def pause_step(db: sqlite3.Connection, branch_id: int, step: int, pauses: int) -> None:
    """Store how often an open step was paused because no comparison was usable."""
    db.execute(
        """UPDATE steps SET stats = json_object('pauses', ?)
            WHERE branch_id = ? AND step = ? AND status = 'open'""",
        (pauses, branch_id, step),
    )


def close_eval(db: sqlite3.Connection, branch_id: int, step: int, stats: Mapping[str, Any]) -> None:
    """Close an evaluation step, which has a row for every rollout it planned."""
    db.execute(
        """UPDATE steps SET status = 'closed', stats = ?, closed_at = ?
            WHERE branch_id = ? AND step = ?""",
        (json.dumps(dict(stats)), now(), branch_id, step),
    )
    step_totals.write_totals(db, branch_id, step)
