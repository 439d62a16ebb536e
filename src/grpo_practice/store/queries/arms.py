"""Figures of an evaluation that is compared with another: what an answer took, and how it ended."""

import json
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from grpo_practice.store.records import Branch
from grpo_practice.store.step_totals import ROLLOUTS


@dataclass(frozen=True, slots=True)
class ArmTotals:
    """Totals over the rollouts of an evaluation that have a row."""

    rollouts: int = 0
    tokens: int = 0
    """Tokens in and out of the rollouts that tell both."""
    counted: int = 0
    """Rollouts that tell their tokens."""
    cost_micro: int = 0
    """Micro-dollars of the rollouts whose cost is known."""
    priced: int = 0
    """Rollouts whose cost is known."""
    truncated: int = 0
    empty: int = 0
    """Scored rollouts without any text."""
    unread: int = 0
    """Scored rollouts in which the verify function read no answer."""
    scored: int = 0
    begun: str = ""
    """Time at which the first rollout ended; "" for none."""
    ended: str = ""

    def plus(self, other: "ArmTotals") -> "ArmTotals":
        """Return the totals of both."""
        times = [at for at in (self.begun, other.begun) if at]
        return ArmTotals(
            self.rollouts + other.rollouts,
            self.tokens + other.tokens,
            self.counted + other.counted,
            self.cost_micro + other.cost_micro,
            self.priced + other.priced,
            self.truncated + other.truncated,
            self.empty + other.empty,
            self.unread + other.unread,
            self.scored + other.scored,
            min(times, default=""),
            max(self.ended, other.ended),
        )


def arm_totals(db: sqlite3.Connection, branch: Branch) -> ArmTotals:
    """Return the totals of an evaluation's rollouts, over its line."""
    found = ArmTotals()
    for segment in branch.line:
        row = db.execute(
            f"""SELECT count(*) AS rollouts,
                  coalesce(sum(r.tokens_in + r.tokens_out), 0) AS tokens,
                  count(r.tokens_in + r.tokens_out) AS counted,
                  coalesce(sum(r.cost_micro), 0) AS cost_micro, count(r.cost_micro) AS priced,
                  coalesce(sum(r.outcome = 'truncated'), 0) AS truncated,
                  coalesce(sum(v.reward IS NOT NULL AND trim(r.head) = ''), 0) AS empty,
                  coalesce(sum(v.reward IS NOT NULL AND v.extracted IS NULL), 0) AS unread,
                  count(v.reward) AS scored,
                  coalesce(min(r.finished_at), '') AS begun,
                  coalesce(max(r.finished_at), '') AS ended
                {ROLLOUTS} WHERE s.branch_id = ? AND s.step >= ? AND s.step < ?""",
            (segment.branch_id, segment.first, segment.end),
        ).fetchone()
        found = found.plus(ArmTotals(**dict(row)))
    return found


def question_texts(db: sqlite3.Connection, samples: Iterable[int]) -> dict[int, str]:
    """Return sample → its question."""
    rows = db.execute(
        """SELECT sample_id, question FROM samples
            WHERE sample_id IN (SELECT value FROM json_each(?))""",
        (json.dumps(sorted(samples)),),
    )
    return dict(rows.fetchall())


def planned_samples(db: sqlite3.Connection, branch_ids: Collection[int]) -> set[int]:
    """Return the samples that steps of these branches have planned."""
    rows = db.execute(
        """SELECT DISTINCT json_extract(slot.value, '$[0]') FROM steps, json_each(plan) AS slot
            WHERE branch_id IN (SELECT value FROM json_each(?))""",
        (json.dumps(sorted(branch_ids)),),
    )
    return {int(sample) for (sample,) in rows}


def practices_behind(db: sqlite3.Connection, sha: bytes) -> set[str]:
    """Return the runs that a library of this text was learnt in, those it was taken from too."""
    rows = db.execute(
        """WITH RECURSIVE up(library_id, run_id, parent_id) AS (
             SELECT library_id, run_id, parent_id FROM libraries WHERE sha256 = ? AND n > 0
             UNION SELECT l.library_id, l.run_id, l.parent_id
               FROM libraries l JOIN up ON l.library_id = up.parent_id)
           SELECT DISTINCT run_id FROM up""",
        (sha,),
    )
    return {run for (run,) in rows}
