"""Rows of a run for one page, read in a time that does not depend on the size of the run.

A page starts after the position of the last row on the previous page, and an index returns its rows
in order. Views that join a whole line are never used for pages, because SQLite would read the whole
line for each page.
"""

import json
import sqlite3
from dataclasses import dataclass

from grpo_practice.store.queries.references import branch_ids
from grpo_practice.store.queries.rollout_list import (
    QUESTION,
    numbers,
)
from grpo_practice.store.queries.scores import groups_by_place
from grpo_practice.store.queries.spending import OF_RUN
from grpo_practice.store.records import Branch


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group of a closed practice step, as a row of a list."""

    step: int
    slot: int
    sample_id: int
    number: int | None
    """Number of the question in the run's dataset, starting at 1."""
    question: str
    planned: int
    played: int
    scored: int
    mean_reward: float | None
    informative: bool
    status: str
    reason: str | None
    """Reason why the group failed or was too small."""


def group_page(
    db: sqlite3.Connection,
    branch: Branch,
    after: tuple[int, int],
    n: int,
    *,
    step: int | None = None,
    status: str | None = None,
) -> list[GroupLine]:
    """Return the next `n` groups of the closed steps on a practice run's line.

    `after`: step and slot of the last group on the previous page, (-1, -1) for the first page;
    `status`: the only status to return, such as `uniform`.
    """
    found = list[GroupLine]()
    for segment in reversed(branch.line):
        if len(found) == n:
            break
        where = "g.branch_id = ? AND (g.step, g.slot) > (?, ?) AND g.step < ?"
        begin = max(after, (segment.first, -1))
        values: list[object] = [segment.branch_id, *begin, segment.end]
        if step is not None:
            where, values = f"{where} AND g.step = ?", [*values, step]
        if status is not None:
            where, values = f"{where} AND g.status = ?", [*values, status]
        rows = db.execute(
            f"""SELECT g.step, g.slot, g.sample_id, substr(q.question, 1, {QUESTION}) AS question,
                  g.planned, g.played, g.scored, g.mean_reward, g.informative, g.status, g.reason
                  FROM groups g JOIN samples q ON q.sample_id = g.sample_id
                 WHERE {where} ORDER BY g.step, g.slot LIMIT ?""",
            (*values, n - len(found)),
        ).fetchall()
        known = numbers(db, segment.branch_id, {row["sample_id"] for row in rows})
        found += [
            GroupLine(
                **{**row, "informative": bool(row["informative"])},
                number=known.get(row["sample_id"]),
            )
            for row in rows
        ]
    return found


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit to a question: a group that was played for it."""

    sample_id: int
    visit: int
    """Number of earlier visits."""
    step: int
    slot: int
    planned: int
    """Planned attempts of the group."""
    scored: int
    """Attempts with a reward."""
    correct: int
    mean: float | None
    """Mean reward; None if no attempt has a reward."""


def question_visits(db: sqlite3.Connection, branch: Branch) -> list[Visit]:
    """Return all visits to questions on a branch's line, by step and slot, with their rewards.

    Closed steps are read from their totals; a question that is not asked has no visit.
    """
    planned, tallies = groups_by_place(db, branch)
    visits, asked = list[Visit](), dict[int, int]()
    for (step, slot), (sample, attempts) in planned.items():
        scored, correct, total, _ = tallies.get((step, slot), (0, 0, 0.0, 0.0))
        if not attempts:
            continue
        visit = asked.get(sample, 0)
        asked[sample] = visit + 1
        mean = total / scored if scored else None
        visits.append(Visit(sample, visit, step, slot, attempts, scored, correct, mean))
    return visits


def last_plays(db: sqlite3.Connection, branch: Branch) -> dict[int, tuple[int, int]]:
    """Return sample → step and slot of its last group on a branch's line."""
    return {visit.sample_id: (visit.step, visit.slot) for visit in question_visits(db, branch)}


@dataclass(frozen=True, slots=True)
class StepStageCost:
    """Calls of one stage in one step, over all branches of a run."""

    step: int
    stage: str
    calls: int
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    unpriced: int
    """Calls with an unknown cost."""


def stage_costs(db: sqlite3.Connection, run: str) -> list[StepStageCost]:
    """Return the sums over a run's calls by step and stage, including calls on old branches."""
    rows = db.execute(
        f"""SELECT step, stage, sum(calls) AS calls, sum(tokens_in) AS tokens_in,
                  sum(tokens_out) AS tokens_out, sum(cost_micro) / 1e6 AS usd,
                  sum((NOT priced) * calls) AS unpriced
             FROM call_sums {OF_RUN} GROUP BY step, stage ORDER BY step, stage""",
        {"run": run, "children": False},
    )
    return [StepStageCost(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class FailureLine:
    """A request that got no usable answer."""

    branch_id: int
    failure_id: int
    step: int
    slot: int
    """Group that made the request; -1 if no group did."""
    attempt: int
    """Attempt that made the request; -1 if no attempt did."""
    stage: str
    kind: str
    broken: str | None
    """Kind of a broken connection; None for an HTTP response."""
    http_status: int | None
    message: str
    tries: int
    maybe_paid: int
    """Tries that the endpoint may have billed."""
    created_at: str


def failure_page(
    db: sqlite3.Connection, run: str, after: tuple[int, int, int] | None, n: int
) -> list[FailureLine]:
    """Return the next `n` failures of a run, by branch, step and time.

    `after`: branch, step and number of the last failure on the previous page; None for the first
    page.
    """
    found, (last, *place) = list[FailureLine](), after or (-1, -1, -1)
    # Over all branches, not along the line, because requests of replaced steps may have been
    # billed, too.
    for branch in branch_ids(db, run):
        if branch < last or len(found) == n:
            continue
        rows = db.execute(
            f"""SELECT {", ".join(FailureLine.__slots__)} FROM failures
                 WHERE branch_id = ? AND (step, failure_id) > (?, ?)
                 ORDER BY step, failure_id LIMIT ?""",
            (branch, *(place if branch == last else (-1, -1)), n - len(found)),
        )
        found += [FailureLine(**row) for row in rows]
    return found


def count_failures(db: sqlite3.Connection, run: str) -> int:
    """Count the requests in a run that got no usable answer, over all its branches."""
    row = db.execute(
        """SELECT count(*) FROM failures
            WHERE branch_id IN (SELECT branch_id FROM branches WHERE run_id = ?)""",
        (run,),
    ).fetchone()
    return int(row[0])


def lessons_of(db: sqlite3.Connection, branch: Branch, step: int, slot: int) -> list[str]:
    """Return the lessons drawn from a group, in order."""
    rows = db.execute(
        """SELECT text FROM lessons WHERE branch_id = ? AND step = ? AND slot = ?
            ORDER BY ordinal""",
        (branch.holder(step), step, slot),
    )
    return [text for (text,) in rows]


@dataclass(frozen=True, slots=True)
class LifeChange:
    """An operation that added, rewrote or removed an experience."""

    step: int
    op: str
    text: str | None
    """Text of the experience afterwards; None if it was removed."""
    source: str
    """`merge`, `prune` or `human`."""
    reason: str | None
    """Reason for a removal that no merge requested."""
    groups: tuple[tuple[int, int], ...]
    """Step and slot of each group with a proposal behind it."""


@dataclass(frozen=True, slots=True)
class Life:
    """An experience, from the step that added it to the step that removed it."""

    label: int
    imported: str | None
    """Text at the start of the run, if the experience was imported."""
    changes: tuple[LifeChange, ...] = ()
    """Changes on the line, oldest first."""

    @property
    def id(self) -> str:
        """ID in the library: `E12`."""
        return f"E{self.label}"

    @property
    def born(self) -> int | None:
        """Step that added the experience; None if it was imported."""
        return self.changes[0].step if self.imported is None else None

    @property
    def ended(self) -> int | None:
        """Step that removed the experience; None if it was not removed."""
        last = self.changes[-1] if self.changes else None
        return last.step if last and last.op == "DELETE" else None

    @property
    def text(self) -> str | None:
        """Current text, or the last text of a removed experience."""
        texts = [self.imported, *(change.text for change in self.changes)]
        return next((text for text in reversed(texts) if text is not None), None)


def lives(db: sqlite3.Connection, branch: Branch) -> list[Life]:
    """Return all experiences that were ever in a library on a branch's line, by label."""
    imported = db.execute(
        """SELECT e.label, t.text FROM branches b
             JOIN library_items i ON i.library_id = b.library_id
             JOIN experiences e USING (experience_id)
             JOIN experience_texts t ON t.experience_id = i.experience_id AND t.version = i.version
            WHERE b.branch_id = ?""",
        (branch.line[-1].branch_id,),
    )
    found = {label: Life(label, text) for label, text in imported}
    for segment in reversed(branch.line):
        rows = db.execute(
            """SELECT e.label, o.step, o.op, t.text, o.source, o.reason,
                  (SELECT json_group_array(json_array(p.step, p.slot))
                     FROM json_each(o.from_ops) behind JOIN operations p ON p.op_id = behind.value)
                 FROM operations o
                 JOIN experiences e ON e.experience_id = coalesce(o.result_id, o.target_id)
                 LEFT JOIN experience_texts t
                   ON t.experience_id = e.experience_id AND t.op_id = o.op_id
                WHERE o.branch_id = ? AND o.step >= ? AND o.step < ? AND o.status = 'applied'
                ORDER BY o.step, o.op_id""",
            segment,
        )
        for label, step, op, text, source, reason, groups in rows:
            life = found.get(label, Life(label, None))
            behind = tuple((step, slot) for step, slot in json.loads(groups))
            made = LifeChange(step, op, text, source, reason, behind)
            found[label] = Life(label, life.imported, (*life.changes, made))
    return [found[label] for label in sorted(found)]
