"""Totals of a closed step's rollouts, which never change once every rollout has a reward."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from grpo_practice.core.types import Outcome
from grpo_practice.store.records import Branch, Segment

ROLLOUTS = """
  FROM steps s
  JOIN branches b ON b.branch_id = s.branch_id
  JOIN rollouts r ON r.branch_id = coalesce(s.played_by, s.branch_id) AND r.step = +s.step
  LEFT JOIN verdicts v ON v.rollout_id = r.rollout_id AND v.verifier_id = b.verifier_id
"""
"""Rollouts of steps `s`, with the verdicts that count.

`+s.step` keeps SQLite from applying a range of steps to rollouts, which would read all of them once
per step.
"""


UNSUMMED = f"{ROLLOUTS} WHERE s.branch_id = ? AND s.step >= ? AND s.step < ? AND s.sums IS NULL"
"""Rollouts in a segment of a line that are not included in stored sums."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Totals of one step in which every rollout has its reward."""

    rollouts: int
    model_ms: int
    outcomes: list[tuple[Outcome, str | None, int]]
    """[outcome, reason or None, count]."""
    mute: int
    """Answers that were cut before their first character."""
    late: int
    """Rollouts that our own deadline ended."""
    slots: list[tuple[int, int, int, float, float]]
    """[slot, scored, correct, sum of rewards, sum of their squares]."""
    unasked: int
    """Answers given without a request to a model."""


def write_totals(db: sqlite3.Connection, branch_id: int, step: int) -> None:
    """Write the step's totals if every rollout in it has its reward; otherwise clear them."""
    place = (branch_id, step)
    where = "WHERE s.branch_id = ? AND s.step = ?"
    row = db.execute(
        f"""SELECT count(*), count(v.reward), sum(r.model_ms),
              sum(r.outcome = 'truncated' AND r.head = ''),
              sum(r.outcome = 'limit' AND r.reason IS 'time'),
              sum(r.outcome = 'ok' AND r.turns = 0)
            {ROLLOUTS} {where} AND s.played_by IS NULL""",
        place,
    ).fetchone()
    sums = None
    # A rollout without a reward is retried, which would leave the stored sums wrong forever.
    if row[0] and row[0] == row[1]:
        # Every rollout has a reward here, so an `error` is one of another verify function.
        outcomes = db.execute(
            f"""SELECT CASE WHEN r.outcome = 'error' THEN 'ok' ELSE r.outcome END,
                  CASE WHEN r.outcome = 'error' THEN NULL ELSE r.reason END, count(*)
                {ROLLOUTS} {where} GROUP BY 1, 2""",
            place,
        )
        slots = db.execute(
            f"SELECT r.slot, {TALLY} {ROLLOUTS} {where} GROUP BY r.slot ORDER BY r.slot", place
        )
        told = Sums(
            rollouts=row[0],
            model_ms=row[2],
            outcomes=[*map(tuple, outcomes)],
            mute=row[3],
            late=row[4],
            slots=[*map(tuple, slots)],
            unasked=row[5],
        )
        sums = json.dumps(asdict(told))
    db.execute("UPDATE steps SET sums = ? WHERE branch_id = ? AND step = ?", (sums, *place))


# Rewards are floats, so a computed 1 may be slightly less.
TALLY = """count(v.reward) AS n, coalesce(sum(v.reward >= 1 - 1e-9), 0) AS c,
  coalesce(sum(v.reward), 0.0) AS total, coalesce(sum(v.reward * v.reward), 0.0) AS total_sq"""


def totals_by_step(
    db: sqlite3.Connection, segment: Segment, *, slots: bool = False
) -> dict[int, Sums]:
    """Return step → its totals, for the steps of a segment with totals.

    `slots`: also return the totals by slot, which are most of the data.
    """
    told = "sums" if slots else "json_set(sums, '$.slots', json('[]'))"
    rows = db.execute(
        f"""SELECT step, {told} FROM steps
            WHERE branch_id = ? AND step >= ? AND step < ? AND sums IS NOT NULL ORDER BY step""",
        segment,
    )
    return {step: Sums(**json.loads(sums)) for step, sums in rows}


def on_line(db: sqlite3.Connection, branch: Branch) -> Iterator[tuple[int, Sums]]:
    """Yield (step, its totals) of the branch's line, without the totals by slot."""
    for segment in branch.line:
        yield from totals_by_step(db, segment).items()
