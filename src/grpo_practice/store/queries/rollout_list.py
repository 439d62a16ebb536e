"""Rollouts for lists: reads only as many narrow rows as are requested."""

import json
import math
import sqlite3
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from grpo_practice.store.records import Branch, Segment
from grpo_practice.store.rollouts import OUTCOME
from grpo_practice.store.step_totals import ROLLOUTS

QUESTION = 400
"""Maximum number of characters of a question in a list."""


COLUMNS = f"""s.step, r.slot, r.attempt, r.sample_id, r.head, r.turns, r.tool_calls,
  r.tokens_in + r.tokens_out AS tokens, r.model_ms / 1000.0 AS seconds, v.reward, v.extracted,
  {OUTCOME}, substr(q.question, 1, {QUESTION}) AS question"""
"""Columns of a `RolloutRow`, selected from `ROLLOUTS` with `QUESTIONS`."""
QUESTIONS = "JOIN samples q ON q.sample_id = r.sample_id"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Position of a rollout on a branch's line."""

    step: int
    slot: int
    attempt: int
    """Number of the attempt, starting at 0."""


FIRST = Place(-1, -1, -1)
"""Position before all rollouts."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filter for rollouts in a list: all given conditions must hold."""

    step: int | None = None
    samples: Collection[int] | None = None
    """Samples to include; None means all."""
    failed: bool = False
    """True to include only rollouts with a reward below 1 or without a reward."""
    unanswered: bool = False
    """True to include only rollouts that did not end with an answer."""

    def conditions(self) -> tuple[str, list[object]]:
        """Return the SQL to append to the WHERE of a segment, and its values."""
        where, values = "", list[object]()
        if self.samples is not None:
            # One JSON parameter: SQLite limits the number of parameters of a statement.
            where += " AND r.sample_id IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(sorted(self.samples)))
        if self.failed:
            # Rewards are floats, so a computed 1 may be slightly less.
            where += " AND (v.reward IS NULL OR v.reward < 1 - 1e-9)"
        if self.unanswered:
            where += " AND r.outcome <> 'ok'"
        return where, values


ALL = Wanted()
Sort = Literal["reward", "tokens", "time"]
SORTS: Mapping[Sort, str] = {
    "reward": "coalesce(v.reward, -1)",
    "tokens": "-coalesce(r.tokens_in + r.tokens_out, 0)",
    "time": "-r.model_ms",
}
"""SQL of the sort keys of lists: lowest reward, most tokens, most seconds first."""
Key = tuple[float, int, int, int]
"""Sort key, step, slot and attempt of a rollout."""


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """A rollout in a list: its outcome, and the first characters of question and answer."""

    step: int
    slot: int
    attempt: int
    """Number of the attempt, starting at 0."""
    sample_id: int
    number: int | None
    """Number of the question in the run's dataset, counted from 1; None if it is not in the
    dataset.
    """
    question: str
    head: str
    """First characters of the answer."""
    extracted: str | None
    """Answer that the verify function extracted, if it reports one."""
    reward: float | None
    outcome: str
    reason: str | None
    error: str | None
    turns: int
    tool_calls: int
    tokens: int | None
    """Input and output tokens; None if the endpoint did not report them."""
    seconds: float
    """Seconds that the model took."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Number of rollouts, and of the groups that they belong to."""

    rollouts: int = 0
    groups: int = 0


def count_wanted(db: sqlite3.Connection, branch: Branch, wanted: Wanted) -> Counted:
    """Count the rollouts on a branch's line that match the filter."""
    rollouts = groups = 0
    for where, values in _segments(branch, wanted):
        # One joined key, because SQLite's count(DISTINCT …) takes a single expression.
        n, in_groups = db.execute(
            f"SELECT count(*), count(DISTINCT s.step || '.' || r.slot) {ROLLOUTS} {where}", values
        ).fetchone()
        rollouts, groups = rollouts + n, groups + in_groups
    return Counted(rollouts, groups)


def rollout_page(
    db: sqlite3.Connection,
    branch: Branch,
    after: Place,
    n: int,
    wanted: Wanted = ALL,
) -> list[RolloutRow]:
    """Return the next `n` rollouts on a branch's line, by step, group and attempt."""
    # SQLite accepts no larger integer.
    found, n = list[RolloutRow](), min(n, sys.maxsize)
    more, given = wanted.conditions()
    for segment, where, values in stretches(branch, after, wanted.step):
        if len(found) == n:
            break
        rows = db.execute(
            f"""SELECT {COLUMNS} {ROLLOUTS} {QUESTIONS} WHERE {where}{more}
                 ORDER BY s.step, r.slot, r.attempt LIMIT ?""",
            (*values, *given, n - len(found)),
        ).fetchall()
        known = numbers(db, segment.branch_id, {row["sample_id"] for row in rows})
        found += [RolloutRow(**row, number=known.get(row["sample_id"])) for row in rows]
    return found


def one_rollout(db: sqlite3.Connection, branch: Branch, place: Place) -> RolloutRow | None:
    """Return the rollout at a position, or None if it is not stored yet."""
    # A page begins after a position, so ask for the row after the previous attempt.
    before = Place(place.step, place.slot, place.attempt - 1)
    rows = rollout_page(db, branch, before, 1, Wanted(place.step))
    there = [row for row in rows if (row.slot, row.attempt) == (place.slot, place.attempt)]
    return there[0] if there else None


def sorted_keys(
    db: sqlite3.Connection, branch: Branch, wanted: Wanted, sort: Sort, after: Key | None, n: int
) -> list[Key]:
    """Return the keys of the next `n` rollouts in the given order; reading the line takes seconds.

    `after`: the last key of the previous page; None for the first page.
    """
    found = list[Key]()
    for where, values in _segments(branch, wanted):
        rows = db.execute(
            f"""SELECT * FROM (
                  SELECT {SORTS[sort]} AS value, s.step, r.slot, r.attempt {ROLLOUTS} {where})
                 WHERE (value, step, slot, attempt) > (?, ?, ?, ?)
                 ORDER BY value, step, slot, attempt LIMIT ?""",
            (*values, *(after or (-math.inf, -1, -1, -1)), n),
        )
        found += [(value, step, slot, attempt) for value, step, slot, attempt in rows]
    return sorted(found)[:n]


def wanted_groups(
    db: sqlite3.Connection, branch: Branch, wanted: Wanted, most: int | None
) -> Iterator[tuple[int, int, set[int]]]:
    """Yield (step, slot, matching attempts) of the first groups with a matching rollout."""
    left = -1 if most is None else min(most, sys.maxsize)
    for where, values in _segments(branch, wanted):
        rows = db.execute(
            f"""SELECT s.step, r.slot, json_group_array(r.attempt) {ROLLOUTS} {where}
                 GROUP BY s.step, r.slot ORDER BY s.step, r.slot LIMIT ?""",
            (*values, left),
        ).fetchall()
        left -= 0 if left < 0 else len(rows)
        for step, slot, attempts in rows:
            yield step, slot, set(json.loads(attempts))


def question_means(db: sqlite3.Connection, branch: Branch) -> dict[int, list[float]]:
    """Return sample → its mean reward in each of its groups, oldest first."""
    means = dict[int, list[float]]()
    for where, values in _segments(branch, Wanted()):
        for sample, mean in db.execute(
            f"""SELECT r.sample_id, avg(v.reward) {ROLLOUTS} {where} AND v.reward IS NOT NULL
                 GROUP BY s.step, r.slot ORDER BY s.step, r.slot""",
            values,
        ):
            means.setdefault(sample, []).append(mean)
    return means


def sample_numbered(db: sqlite3.Connection, dataset_id: int, number: int) -> int | None:
    """Return the sample at this number in the dataset, counted from 1, or None."""
    row = db.execute(
        "SELECT sample_id FROM dataset_rows WHERE dataset_id = ? AND position = ?",
        (dataset_id, number - 1),
    ).fetchone()
    return row[0] if row else None


def stretches(
    branch: Branch, after: Place, step: int | None
) -> Iterator[tuple[Segment, str, list[int]]]:
    """Yield (segment, WHERE, values) for the rest of the step at `after`, and for later steps."""
    # Two statements: no index supports the range `(step, slot, attempt) > …` over two tables.
    for segment in reversed(branch.line):
        if step in (None, after.step) and segment.first <= after.step < segment.end:
            where = "s.branch_id = ? AND s.step = ? AND (r.slot, r.attempt) > (?, ?)"
            yield segment, where, [segment.branch_id, after.step, after.slot, after.attempt]
        first, end = max(segment.first, after.step + 1), segment.end
        if step is not None:
            first, end = max(first, step), min(end, step + 1)
        if first < end:
            where = "s.branch_id = ? AND s.step >= ? AND s.step < ?"
            yield segment, where, [segment.branch_id, first, end]


def _segments(branch: Branch, wanted: Wanted) -> Iterator[tuple[str, list[object]]]:
    """Yield (WHERE, values) of each segment of the line, oldest first."""
    more, given = wanted.conditions()
    for _, where, values in stretches(branch, FIRST, wanted.step):
        yield f"WHERE {where}{more}", [*values, *given]


def numbers(db: sqlite3.Connection, branch_id: int, samples: Collection[int]) -> dict[int, int]:
    """Return sample → its number in the dataset that the branch began with."""
    rows = db.execute(
        """SELECT sample_id, min(position) + 1 FROM dataset_rows
            WHERE dataset_id = (SELECT dataset_id FROM branches WHERE branch_id = ?)
              AND sample_id IN (SELECT value FROM json_each(?)) GROUP BY 1""",
        (branch_id, json.dumps(sorted(samples))),
    )
    return dict(rows.fetchall())
