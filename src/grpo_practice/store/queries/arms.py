"""Figures of evaluations for comparisons and effects: costs, endings, parts of the library."""

import json
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from grpo_practice.core.types import Answer
from grpo_practice.data.staged_samples import answer_of
from grpo_practice.store.branches import rows_on_line
from grpo_practice.store.records import Branch
from grpo_practice.store.step_totals import ROLLOUTS

# Imported texts, including those of the arms `direct` and `filler`, were not learnt here.
_LEARNT = "n > 0 AND cause <> 'import'"
_SCORED = "FILTER (WHERE v.reward NOTNULL)"


@dataclass(frozen=True, slots=True)
class ArmTotals:
    """Totals over the scored rollouts of an evaluation; failed rollouts do not count as answers."""

    tokens: int = 0
    """Input and output tokens of rollouts that report both."""
    counted: int = 0
    """Number of rollouts that report both token counts."""
    cost_micro: int = 0
    """Micro-dollars of rollouts with a known cost."""
    priced: int = 0
    """Number of rollouts with a known cost."""
    truncated: int = 0
    empty: int = 0
    """Number of answers without any text."""
    unread: int = 0
    """Number of responses in which the verify function found no answer."""
    scored: int = 0
    begun: str = ""
    """Time at which the first rollout ended, scored or not; "" without rollouts."""
    ended: str = ""


def arm_totals(db: sqlite3.Connection, branch: Branch) -> ArmTotals:
    """Return the totals of the rollouts on an evaluation's line."""
    found = rows_on_line(
        db,
        branch,
        f"""SELECT
              coalesce(sum(r.tokens_in + r.tokens_out) {_SCORED}, 0) AS tokens,
              count(r.tokens_in + r.tokens_out) {_SCORED} AS counted,
              coalesce(sum(r.cost_micro) {_SCORED}, 0) AS cost_micro,
              count(r.cost_micro) {_SCORED} AS priced,
              coalesce(sum(r.outcome = 'truncated') {_SCORED}, 0) AS truncated,
              coalesce(sum(trim(r.head) = '') {_SCORED}, 0) AS empty,
              coalesce(sum(v.extracted IS NULL) {_SCORED}, 0) AS unread,
              count(v.reward) AS scored,
              coalesce(min(r.finished_at), '') AS begun,
              coalesce(max(r.finished_at), '') AS ended
            {ROLLOUTS} WHERE s.branch_id = ? AND s.step >= ? AND s.step < ?""",
    )
    rows = [dict(row) for row in found]
    # A segment without rollouts has no times.
    begun = min(filter(None, (row.pop("begun") for row in rows)), default="")
    ended = max(row.pop("ended") for row in rows)
    sums = {name: sum(row[name] for row in rows) for name in rows[0]}
    return ArmTotals(**sums, begun=begun, ended=ended)


def seconds_worked(db: sqlite3.Connection, run: str) -> float:
    """Return the total wall time of all finished commands on a run, in seconds."""
    (seconds,) = db.execute(
        """SELECT coalesce(sum(julianday(ended_at) - julianday(started_at)), 0) * 86400
             FROM invocations WHERE run_id = ? AND ended_at IS NOT NULL""",
        (run,),
    ).fetchone()
    return float(seconds)


def question_texts(db: sqlite3.Connection, samples: Iterable[int]) -> dict[int, str]:
    """Return sample → its question."""
    rows = db.execute(
        """SELECT sample_id, question FROM samples
            WHERE sample_id IN (SELECT value FROM json_each(?))""",
        (json.dumps(sorted(samples)),),
    )
    return dict(rows.fetchall())


def answers(db: sqlite3.Connection, samples: Iterable[int]) -> dict[int, Answer]:
    """Return sample → its expected answer; None for a question without one."""
    rows = db.execute(
        """SELECT sample_id, answer FROM samples
            WHERE sample_id IN (SELECT value FROM json_each(?))""",
        (json.dumps(sorted(samples)),),
    )
    return {sample: answer_of(answer) for sample, answer in rows}


def planned_samples(db: sqlite3.Connection, branch_ids: Collection[int]) -> set[int]:
    """Return the samples in the plans of these branches' steps."""
    rows = db.execute(
        """SELECT DISTINCT json_extract(slot.value, '$[0]') FROM steps, json_each(plan) AS slot
            WHERE branch_id IN (SELECT value FROM json_each(?))""",
        (json.dumps(sorted(branch_ids)),),
    )
    return {int(sample) for (sample,) in rows}


def libraries_behind(db: sqlite3.Connection, sha: bytes) -> set[tuple[str, int]]:
    """Return (run, branch) of the libraries with this text and of all their ancestors.

    A library read from a file has no recorded parent, so it is traced by its text.
    """
    rows = db.execute(
        """WITH RECURSIVE up(library_id, run_id, branch_id, parent_id, sha256) AS (
             SELECT library_id, run_id, branch_id, parent_id, sha256 FROM libraries
              WHERE sha256 = ? AND n > 0
             UNION SELECT l.library_id, l.run_id, l.branch_id, l.parent_id, l.sha256
               FROM libraries l
               JOIN up ON l.library_id = up.parent_id OR (l.sha256 = up.sha256 AND l.n > 0))
           SELECT DISTINCT run_id, branch_id FROM up WHERE branch_id NOT NULL""",
        (sha,),
    )
    return {(run, branch_id) for run, branch_id in rows}


def makers(db: sqlite3.Connection, sha: bytes) -> set[str]:
    """Return the runs that learnt a library with this text."""
    rows = db.execute(f"SELECT run_id FROM libraries WHERE sha256 = ? AND {_LEARNT}", (sha,))
    return {run for (run,) in rows}


def hashes_made(db: sqlite3.Connection, run: str) -> set[bytes]:
    """Return the hashes of the libraries that a run learnt."""
    rows = db.execute(f"SELECT sha256 FROM libraries WHERE run_id = ? AND {_LEARNT}", (run,))
    return {sha for (sha,) in rows}


def family_sizes(db: sqlite3.Connection, samples: Iterable[int]) -> list[int]:
    """Return the number of samples in each family; a sample without a family counts as its own."""
    rows = db.execute(
        """SELECT count(*) FROM samples WHERE sample_id IN (SELECT value FROM json_each(?))
            GROUP BY cluster, CASE WHEN coalesce(cluster, '') = '' THEN sample_id END""",
        (json.dumps(sorted(samples)),),
    )
    return [size for (size,) in rows]


@dataclass(frozen=True, slots=True)
class PartRollout:
    """A rollout, and the experiences left out of its prompt."""

    sample: int
    left_out: frozenset[str]
    """IDs of the experiences that were not in the prompt."""
    reward: float | None
    """Reward; None if the rollout failed."""


def part_rollouts(db: sqlite3.Connection, branch: Branch) -> list[PartRollout]:
    """Return the rollouts on the branch's line in a run that measures experiences."""
    rows = rows_on_line(
        db,
        branch,
        f"""SELECT r.sample_id, r.left_out, v.reward {ROLLOUTS}
             WHERE s.branch_id = ? AND s.step >= ? AND s.step < ?
            ORDER BY r.step, r.slot, r.attempt""",
    )
    return [
        PartRollout(sample, frozenset(json.loads(left_out or "[]")), reward)
        for sample, left_out, reward in rows
    ]
