"""Figures of an evaluation that is compared with another: what an answer took, and how it ended."""

import json
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from grpo_practice.store.records import Branch
from grpo_practice.store.step_totals import ROLLOUTS

# Texts from elsewhere, those of the arms `direct` and `filler` too, are of no practice.
_LEARNT = "n > 0 AND cause <> 'import'"
_SCORED = "FILTER (WHERE v.reward NOTNULL)"


@dataclass(frozen=True, slots=True)
class ArmTotals:
    """Totals over the scored rollouts of an evaluation: what failed is no answer."""

    tokens: int = 0
    """Tokens in and out of those that tell both."""
    counted: int = 0
    """Number of those that tell their tokens."""
    cost_micro: int = 0
    """Micro-dollars of those whose cost is known."""
    priced: int = 0
    """Number of those whose cost is known."""
    truncated: int = 0
    empty: int = 0
    """Number of those without any text."""
    unread: int = 0
    """Number of those in which the verify function read no answer."""
    scored: int = 0
    begun: str = ""
    """Time at which the first rollout ended, whether scored or not; "" for none."""
    ended: str = ""

    def plus(self, other: "ArmTotals") -> "ArmTotals":
        """Return the totals of both."""
        times = [at for at in (self.begun, other.begun) if at]
        return ArmTotals(
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
            (segment.branch_id, segment.first, segment.end),
        ).fetchone()
        found = found.plus(ArmTotals(**dict(row)))
    return found


def seconds_worked(db: sqlite3.Connection, run: str) -> float:
    """Return the wall time of all commands on a run that have ended, in seconds."""
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


def planned_samples(db: sqlite3.Connection, branch_ids: Collection[int]) -> set[int]:
    """Return the samples that steps of these branches have planned."""
    rows = db.execute(
        """SELECT DISTINCT json_extract(slot.value, '$[0]') FROM steps, json_each(plan) AS slot
            WHERE branch_id IN (SELECT value FROM json_each(?))""",
        (json.dumps(sorted(branch_ids)),),
    )
    return {int(sample) for (sample,) in rows}


def libraries_behind(db: sqlite3.Connection, sha: bytes) -> set[tuple[str, int]]:
    """Return (run, branch) of each library that one of this text was made of, itself among them.

    One that was read from a file has no parent on record: its text tells where it is from.
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
    """Return the runs that made a library of this text by what was learnt."""
    rows = db.execute(f"SELECT run_id FROM libraries WHERE sha256 = ? AND {_LEARNT}", (sha,))
    return {run for (run,) in rows}


def hashes_made(db: sqlite3.Connection, run: str) -> set[bytes]:
    """Return the hashes of the libraries that a run made by what was learnt."""
    rows = db.execute(f"SELECT sha256 FROM libraries WHERE run_id = ? AND {_LEARNT}", (run,))
    return {sha for (sha,) in rows}


def family_sizes(db: sqlite3.Connection, samples: Iterable[int]) -> list[int]:
    """Return the number of samples of each family; one without a family is one of its own."""
    rows = db.execute(
        """SELECT count(*) FROM samples WHERE sample_id IN (SELECT value FROM json_each(?))
            GROUP BY cluster, CASE WHEN coalesce(cluster, '') = '' THEN sample_id END""",
        (json.dumps(sorted(samples)),),
    )
    return [size for (size,) in rows]
