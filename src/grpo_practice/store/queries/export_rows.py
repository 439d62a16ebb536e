"""Queries of exports: rollouts as rows with all their texts, and facts about training data."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.types import Answer
from grpo_practice.store.db import get_text
from grpo_practice.store.queries.rollout_list import QUESTIONS, Place, stretches
from grpo_practice.store.records import Branch, StepRow
from grpo_practice.store.rollouts import OUTCOME
from grpo_practice.store.step_totals import ROLLOUTS
from grpo_practice.store.steps import row_of


@dataclass(frozen=True, slots=True)
class ExportRow:
    """One rollout; the fields are the columns of the file."""

    run: str
    branch: int
    """Branch that holds the step."""
    step: int
    epoch: int
    slot: int
    attempt: int
    """Number of the attempt, starting at 0."""
    number: int | None
    """Number of the question in the run's dataset, counted from 1; None if it is not in the
    dataset.
    """
    question: str
    gold: Answer
    answer: str
    extracted: str | None
    """Answer that the verify function extracted, if it reports one."""
    reward: float | None
    outcome: str
    reason: str | None
    error: str | None
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    """Cost of its model and tool calls; None if it is unknown."""
    seconds: float
    """Seconds that the model took."""
    library: str | None
    """Library in its prompt, such as `L12`; None without a library."""
    finished_at: str
    arm: str | None
    """Agent or library that the run measures, as typed."""
    tags: str
    """Tags of the run, separated by spaces."""
    note: str

    @property
    def place(self) -> Place:
        """Position after which the next page begins."""
        return Place(self.step, self.slot, self.attempt)


_COLUMNS = f"""s.branch_id AS branch, s.step, s.epoch, r.slot, r.attempt, r.sample_id, q.question,
  q.answer AS gold, t.response AS answer, v.extracted, v.reward, {OUTCOME},
  r.tokens_in, r.tokens_out, r.cost_micro / 1e6 AS usd, r.model_ms / 1000.0 AS seconds,
  'L' || r.library_id AS library, r.finished_at, u.arm, u.tags, u.note"""


def question_numbers(db: sqlite3.Connection, branch: Branch) -> dict[int, int]:
    """Return sample → its first number in the branch's dataset, counted from 1."""
    # Read once for all pages; otherwise each page would search the dataset again.
    rows = db.execute(
        """SELECT sample_id, min(position) + 1 FROM dataset_rows WHERE dataset_id = ?
            GROUP BY sample_id""",
        (branch.dataset_id,),
    )
    return dict(rows.fetchall())


def export_page(
    db: sqlite3.Connection,
    branch: Branch,
    after: Place,
    n: int,
    *,
    numbers: Mapping[int, int],
    step: int | None = None,
) -> list[ExportRow]:
    """Return the next `n` rollouts on a branch's line, with all their texts; see `rollout_page`."""
    found = list[ExportRow]()
    for _, where, values in stretches(branch, after, step):
        if len(found) == n:
            break
        rows = db.execute(
            f"""SELECT {_COLUMNS} {ROLLOUTS} {QUESTIONS}
                 JOIN rollout_bodies t ON t.rollout_id = r.rollout_id
                 JOIN runs u ON u.run_id = ? WHERE {where}
                 ORDER BY s.step, r.slot, r.attempt LIMIT ?""",
            (branch.run, *values, n - len(found)),
        )
        found += [_row(branch.run, row, numbers) for row in rows]
    return found


def _row(run: str, row: sqlite3.Row, numbers: Mapping[int, int]) -> ExportRow:
    values = dict(row)
    values["number"] = numbers.get(values.pop("sample_id"))
    values["gold"] = None if row["gold"] is None else json.loads(row["gold"])
    return ExportRow(run=run, **values)


def next_step(db: sqlite3.Connection, branch: Branch, after: int) -> StepRow | None:
    """Return the first planned step after `after` on a branch's line; None after the last step."""
    for segment in reversed(branch.line):
        row = db.execute(
            """SELECT * FROM steps WHERE branch_id = ? AND step >= ? AND step < ?
                ORDER BY step LIMIT 1""",
            (segment.branch_id, max(segment.first, after + 1), segment.end),
        ).fetchone()
        if row is not None:
            return row_of(row)
    return None


def evaluated_samples(db: sqlite3.Connection) -> set[int]:
    """Return the samples that any evaluation in this database asks or plans to ask."""
    rows = db.execute(
        """SELECT DISTINCT json_extract(slot.value, '$[0]')
             FROM runs r JOIN branches b USING (run_id) JOIN steps s USING (branch_id),
                  json_each(s.plan) AS slot
            WHERE r.kind = 'eval'"""
    )
    return {sample for (sample,) in rows}


def offered_tools(db: sqlite3.Connection, call_id: int) -> list[dict[str, Any]]:
    """Return the schemas of the tools that a model call offered."""
    row = db.execute("SELECT params FROM call_bodies WHERE call_id = ?", (call_id,)).fetchone()
    if row is None or row[0] is None:
        return []
    tools: list[dict[str, Any]] = json.loads(get_text(db, row[0])).get("tools") or []
    return tools
