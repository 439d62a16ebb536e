"""Earlier comparisons on the same questions, found through the commands that played rollouts.

Each command that plays new rollouts is one look at the results; printing a report again is not a
look. A comparison therefore keeps its number, even if more evaluations follow.
"""

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from grpo_practice.core.stats.paired import FEWEST, Look
from grpo_practice.store.records import EFFECT, Branch, RunRow

_ROLLOUTS = """
  FROM steps s CROSS JOIN rollouts USING (branch_id, step)
 WHERE branch_id = p.branch_id AND NOT ifnull(s.status = 'closed' AND s.closed_at < p.started_at, 0)
   AND finished_at BETWEEN p.started_at AND p.ended
   AND sample_id IN (SELECT value FROM json_each(:samples))"""
"""Rollouts that a command finished; steps closed before the command contain no such rollouts."""
# One row for each command on an evaluation. An interrupted command and the commands that continue
# it are one look. So are all evaluations of one practice run, since intermediate scores decide
# nothing. A retried rollout keeps the id of its first row, so filling gaps is not a look; nor is
# reusing the answers of another run. Each arm is compared with each if all are libraries and files,
# else with one of them.
_MEASURED = f"""
WITH played AS (
  SELECT i.invocation_id, i.run_id, i.branch_id, r.arm, i.started_at,
         coalesce(i.ended_at, '9') AS ended, i.exit_code IS 0 AND i.reason IS NULL AS complete,
         CASE WHEN EXISTS (SELECT 1 FROM invocations e WHERE e.branch_id = i.branch_id
                             AND e.invocation_id < i.invocation_id)
              THEN (SELECT coalesce(max(rollout_id), 0) FROM rollouts
                     WHERE branch_id = i.branch_id AND finished_at < i.started_at)
              ELSE 0 END AS known,
         (SELECT min(w.invocation_id) FROM invocations w JOIN runs o USING (run_id)
           WHERE w.pid = i.pid AND w.host = i.host AND o.exp_id = r.exp_id
             AND w.branch_id IS NOT NULL AND w.started_at <= i.started_at
             AND coalesce(w.ended_at, '9') >= i.started_at) AS asked_by,
         b.rebinds IS NULL OR EXISTS (
           SELECT 1 FROM call_sums c WHERE c.branch_id = i.branch_id
              AND c.invocation_id = i.invocation_id AND c.stage = 'play') AS new
    FROM runs r JOIN invocations i USING (run_id) JOIN branches b USING (branch_id)
   WHERE r.exp_id IN (SELECT value FROM json_each(:experiments)) AND r.simulated = :simulated
     AND r.kind = 'eval' AND r.purpose <> '{EFFECT}')
SELECT c.branch_id AS asked_by, (SELECT count(*) FROM invocations
         WHERE branch_id = c.branch_id AND invocation_id < c.invocation_id
           AND exit_code = 0 AND reason IS NULL) AS nth,
       (SELECT CASE WHEN count(*) = total(a.arm GLOB 'L[0-9]*' OR a.arm GLOB '*[./]*')
                    THEN count(*) * (count(*) - 1) / 2 ELSE count(*) - 1 END
          FROM played a WHERE a.asked_by = p.asked_by AND o.kind = 'eval') AS together,
       p.run_id, p.branch_id, p.ended, p.complete, EXISTS (SELECT 1 {_ROLLOUTS}) AS played,
       (SELECT json_group_array(sample_id) FROM (
          SELECT DISTINCT sample_id {_ROLLOUTS} AND rollout_id > p.known LIMIT {FEWEST})) AS asked
  FROM played p JOIN invocations c ON c.invocation_id = p.asked_by
  JOIN runs o ON o.run_id = c.run_id
 WHERE p.new"""


@dataclass(slots=True)
class _Measured:
    """Evaluations whose rollouts were played in one look."""

    together: int
    """Number of contrasts between the evaluations of the command."""
    ended: str = ""
    complete: bool = False
    runs: set[str] = field(default_factory=set)
    branches: set[int] = field(default_factory=set)


def look_of(
    db: sqlite3.Connection, arms: Sequence[tuple[RunRow, Branch]], samples: Collection[int]
) -> Look:
    """Return the position of a comparison of two evaluations on these samples.

    The comparison belongs to the last look that played rollouts for either evaluation. An earlier
    look counts if, once it had ended, at least two evaluations in the arms' experiments could be
    compared on at least 10 of the samples.
    """
    looks = _measured(db, {run.exp_id for run, _ in arms}, arms[0][0].simulated, samples)
    own = {branch_id for _, branch in arms for branch_id in _branches_behind(db, branch)}
    # Use the last look, because printing an old comparison again after newer evaluations must not
    # change its number.
    last = next((look for look in reversed(looks) if look.branches & own), None)
    if last is None:
        return Look()
    return Look(1 + _comparisons(looks[: looks.index(last)]), max(last.together, 1))


def next_look(
    db: sqlite3.Connection, exp_id: str, simulated: bool, samples: Collection[int]
) -> Look:
    """Return the position of the comparison that more rollouts on these samples will allow."""
    return Look(1 + _comparisons(_measured(db, {exp_id}, simulated, samples)))


def _measured(
    db: sqlite3.Connection, experiments: Collection[str], simulated: bool, samples: Collection[int]
) -> list[_Measured]:
    """Return the looks at these samples, in the order in which they ended."""
    parts = dict[tuple[int, int, int], list[sqlite3.Row]]()
    given = {
        "experiments": json.dumps(sorted(experiments)),
        "simulated": simulated,
        "samples": json.dumps(sorted(samples)),
    }
    for row in db.execute(_MEASURED, given):
        if row["played"]:
            parts.setdefault((row["asked_by"], row["nth"], row["branch_id"]), []).append(row)
    found = dict[tuple[int, int], _Measured]()
    for (asked_by, nth, branch_id), rows in parts.items():
        # With fewer samples, no comparison would have been possible, so it was not a look.
        if len({sample for row in rows for sample in json.loads(row["asked"])}) < FEWEST:
            continue
        look = found.setdefault((asked_by, nth), _Measured(rows[0]["together"]))
        look.ended = max(look.ended, *(row["ended"] for row in rows))
        look.complete |= any(row["complete"] for row in rows)
        look.runs.add(rows[0]["run_id"])
        look.branches.add(branch_id)
    return sorted(found.values(), key=lambda look: look.ended)


def _comparisons(looks: Sequence[_Measured]) -> int:
    """Count the complete looks after which two evaluations could be compared."""
    number, runs = 0, set[str]()
    for look in looks:
        if look.complete:
            runs |= look.runs
            number += len(runs) > 1
    return number


def _branches_behind(db: sqlite3.Connection, branch: Branch) -> set[int]:
    """Return the branches whose commands played an evaluation: its own and those it reuses."""
    line = [segment.branch_id for segment in branch.line]
    rows = db.execute(
        """SELECT DISTINCT played_by FROM steps WHERE played_by IS NOT NULL
            AND branch_id IN (SELECT value FROM json_each(?))""",
        (json.dumps(line),),
    )
    return {*line, *branch.reuses, *(played_by for (played_by,) in rows)}
