"""Scores: sums over the rollouts on a run's line, computed by the database."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.calls import Usage
from grpo_practice.core.stats import Question
from grpo_practice.core.types import STRIKES
from grpo_practice.store import branches, step_totals, steps
from grpo_practice.store.queries.spending import OF_RUN, TOKENS
from grpo_practice.store.records import Branch, RunRow, StepRow
from grpo_practice.store.rollouts import OUTCOME, usage_of
from grpo_practice.store.step_totals import TALLY, UNSUMMED


@dataclass(frozen=True, slots=True)
class Requests:
    """Number of answered calls and of failed requests."""

    new: int
    failed: int


def questions(db: sqlite3.Connection, branch: Branch) -> list[Question]:
    """Return one tally for each planned question of an evaluation, in plan order, keyed by sample.

    A sample that is planned twice has two tallies.
    """
    planned, tallies = groups_by_place(db, branch)
    families = _families(db, {sample for sample, _ in planned.values()})
    return [
        _question(sample, k, tallies.get(place), families[sample])
        for place, (sample, k) in sorted(planned.items())
    ]


Group = tuple[int, int]
"""Step and slot of a group."""


def groups_by_place(
    db: sqlite3.Connection, branch: Branch
) -> tuple[dict[Group, tuple[int, int]], dict[Group, Sequence[Any]]]:
    """Return group → its sample and number of planned attempts, and group → sums of its rewards.

    The first mapping is in order of step and slot. A group without a row is only in the first
    mapping.
    """
    planned = {
        (row.plan.step, slot): (sample, row.attempts(slot))
        for row in steps.on_line(db, branch)
        for slot, (sample, _) in enumerate(row.plan.slots)
    }
    tallies = dict[Group, Sequence[Any]]()
    for segment in branch.line:
        for step, of in step_totals.totals_by_step(db, segment, slots=True).items():
            tallies |= {(step, slot): tally for slot, *tally in of.slots}
        for step, slot, *tally in db.execute(
            f"SELECT r.step, r.slot, {TALLY} {UNSUMMED} GROUP BY r.step, r.slot", segment
        ):
            tallies[step, slot] = tally
    return planned, tallies


def questions_of(db: sqlite3.Connection, run: RunRow) -> list[Question]:
    """Return the current tallies of an evaluation; empty if it was never begun."""
    if run.head_branch is None:
        return []
    return questions(db, branches.load(db, run.head_branch))


def mean_score(db: sqlite3.Connection, branch: Branch) -> float | None:
    """Return only the mean score over the scored questions of an evaluation."""
    n, total = 0, 0.0
    for segment in branch.line:
        # total(), not sum(): it is 0.0 over no rows, where sum() is NULL.
        summed = """SELECT count(*), total(reward / n) FROM (
                SELECT json_extract(slot.value, '$[1]') AS n,
                       json_extract(slot.value, '$[3]') * 1.0 AS reward
                  FROM steps, json_each(sums, '$.slots') AS slot
                 WHERE branch_id = ? AND step >= ? AND step < ?)
             WHERE n > 0"""
        unsummed = f"""SELECT count(*), total(mean) FROM (SELECT avg(v.reward) AS mean {UNSUMMED}
            AND v.reward IS NOT NULL GROUP BY r.step, r.slot)"""
        for questions, means in (db.execute(sql, segment).fetchone() for sql in (summed, unsummed)):
            n, total = n + questions, total + means
    return total / n if n else None


def _families(
    db: sqlite3.Connection, sample_ids: Iterable[int]
) -> dict[int, tuple[str, str | None]]:
    """Return sample → its source and its cluster; None for a question without a cluster."""
    rows = db.execute(
        """SELECT sample_id, source, cluster FROM samples
            WHERE sample_id IN (SELECT value FROM json_each(?))""",
        (json.dumps(list(sample_ids)),),
    )
    return {i: (source, cluster or None) for i, source, cluster in rows}


def _question(
    sample: int, planned: int, tally: Sequence[Any] | None, family: tuple[str, str | None]
) -> Question:
    if not planned:
        # A question without planned attempts is one that cannot be scored.
        return Question(str(sample), source=family[0], unscorable=True)
    n, c, total, total_sq = tally or (0, 0, 0.0, 0.0)
    return Question(str(sample), n, c, total, total_sq, planned, *family)


def _over_unsummed(
    db: sqlite3.Connection, branch: Branch, select: str, tail: str
) -> Iterator[sqlite3.Row]:
    """Yield the rows of a query over every rollout that is not in stored totals, by segment."""
    return branches.rows_on_line(db, branch, f"SELECT {select} {UNSUMMED} {tail}")


def outcomes(db: sqlite3.Connection, branch: Branch) -> dict[str, int]:
    """Count rollouts by outcome: `ok`, `truncated`, `error.provider` and so on."""
    counts: Counter[str] = Counter()
    rows = _over_unsummed(db, branch, f"{OUTCOME}, count(*)", "GROUP BY 1, 2")
    told = [(outcome, reason, n) for outcome, reason, _, n in rows]
    told += [(*row,) for _, of in step_totals.on_line(db, branch) for row in of.outcomes]
    for outcome, reason, n in told:
        counts[f"{outcome}.{reason}" if reason else outcome] += n
    return dict(sorted(counts.items()))


def failures(db: sqlite3.Connection, branch: Branch) -> dict[str, int]:
    """Count the errors of failed rollouts, most frequent first."""
    counts: Counter[str] = Counter()
    for outcome, _, error, n in _over_unsummed(db, branch, f"{OUTCOME}, count(*)", "GROUP BY 1, 3"):
        if outcome == "error":
            counts[str(error)] += n
    return dict(counts.most_common())


def seconds_per_rollout(db: sqlite3.Connection, branch: Branch) -> float | None:
    """Return the model's mean seconds per scored rollout; None without a scored rollout."""
    select = "coalesce(sum(r.model_ms), 0), count(*)"
    rows = [(*row,) for row in _over_unsummed(db, branch, select, "AND v.reward IS NOT NULL")]
    rows += [(of.model_ms, of.rollouts) for _, of in step_totals.on_line(db, branch)]
    n = sum(count for _, count in rows)
    return sum(ms for ms, _ in rows) / n / 1000 if n else None


def missing(db: sqlite3.Connection, branch: Branch) -> int:
    """Count the planned rollouts without a row."""
    planned = sum(q.planned for q in questions(db, branch))
    return planned - sum(outcomes(db, branch).values())


def settled_counts(
    db: sqlite3.Connection, branch: Branch, *, unscored: bool = False
) -> dict[int, int]:
    """Return step → number of settled rollouts, for steps that have any.

    With `unscored`, also count rollouts with an answer that could not be scored.
    """
    more = "OR r.reason IN ('verify', 'judge')" if unscored else ""
    tail = f"AND (v.reward IS NOT NULL OR r.strikes >= {STRIKES} {more}) GROUP BY 1"
    found = {int(step): int(n) for step, n in _over_unsummed(db, branch, "r.step, count(*)", tail)}
    return found | {step: of.rollouts for step, of in step_totals.on_line(db, branch)}


def settled(db: sqlite3.Connection, verifier_id: int, row: StepRow) -> int:
    """Return the number of a step's rollouts that this verify function settled."""
    found = db.execute(
        f"""SELECT count(*) FROM rollouts r
              LEFT JOIN verdicts v ON v.rollout_id = r.rollout_id AND v.verifier_id = ?
             WHERE r.branch_id = ? AND r.step = ?
               AND (v.reward IS NOT NULL OR r.strikes >= {STRIKES})""",
        (verifier_id, row.played_by or row.branch_id, row.plan.step),
    )
    return int(found.fetchone()[0])


def student_addresses(db: sqlite3.Connection, branch_ids: Sequence[int]) -> set[bytes | None]:
    """Return the hashes of the addresses that answered the agent on these branches.

    The set is empty if no request was answered; None in the set stands for unknown addresses.
    """
    marks = ", ".join("?" * len(branch_ids))
    rows = db.execute(
        f"""SELECT DISTINCT i.student_at FROM call_sums s JOIN invocations i USING (invocation_id)
             WHERE stage = 'play' AND s.branch_id IN ({marks})""",
        branch_ids,
    )
    return {address for (address,) in rows}


def usage(db: sqlite3.Connection, run: str, *, children: bool = False) -> Usage:
    """Return the known tokens and cost of all calls of a run.

    All branches count, since their calls were paid for. With `children`, also count the runs that
    the run made.
    """
    # A tool call makes no request and has 0 tokens, which would turn unknown sums into 0.
    tokens = ", ".join(f"sum(CASE WHEN tries > 0 THEN {c} END) AS {c}" for c in TOKENS)
    row = db.execute(
        f"SELECT {tokens}, sum(cost_micro) AS cost_micro FROM call_sums {OF_RUN}",
        {"run": run, "children": children},
    ).fetchone()
    return usage_of(row)


def unpriced(db: sqlite3.Connection, run: str, *, children: bool = False) -> dict[str, int]:
    """Return model → number of calls with an unknown cost, if there are any; see `usage`."""
    rows = db.execute(
        f"""SELECT name, sum(calls) FROM call_sums {OF_RUN} AND NOT priced
            GROUP BY 1 ORDER BY 2 DESC, 1""",
        {"run": run, "children": children},
    )
    return {str(name): int(n) for name, n in rows}


def step_costs(db: sqlite3.Connection, branch: Branch) -> dict[int, int | None]:
    """Return step → micro-dollars of its branch's own calls; None if one cost is unknown."""
    rows = branches.rows_on_line(
        db,
        branch,
        """SELECT step, CASE WHEN min(priced) THEN sum(cost_micro) END
             FROM call_sums WHERE branch_id = ? AND step >= ? AND step < ? GROUP BY step""",
    )
    return {int(step): cost for step, cost in rows}


def requests(db: sqlite3.Connection, invocation_id: int, *, children: bool = False) -> Requests:
    """Count an invocation's requests; with `children`, also the requests of the runs it made."""
    new, failed = db.execute(
        """WITH mine AS (
             SELECT i.invocation_id FROM invocations i JOIN runs r USING (run_id)
               JOIN invocations m ON m.invocation_id = :i
              WHERE i.invocation_id = :i
                 OR (:children AND i.invocation_id > :i AND r.parent_run_id = m.run_id))
           SELECT (SELECT coalesce(sum(calls), 0) FROM call_sums
                     WHERE invocation_id IN mine AND tries > 0),  -- a tool is no request
                  (SELECT count(*) FROM failures WHERE invocation_id IN mine)""",
        {"i": invocation_id, "children": children},
    ).fetchone()
    return Requests(new, failed)
