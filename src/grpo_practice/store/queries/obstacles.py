"""Counts of problems that keep a run from learning or a score from being meaningful."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_practice.store import libraries
from grpo_practice.store.branches import rows_on_line, sums_on_line
from grpo_practice.store.records import Branch, StepRow

AGREE = 1e-9
"""Largest difference of two rewards that counts as rounding."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of a run in which every attempt was played."""

    all: int = 0
    right: int = 0
    """Groups that taught nothing because all their attempts are correct."""
    wrong: int = 0
    """Groups that taught nothing because all their attempts are incorrect."""


def groups(db: sqlite3.Connection, branch: Branch) -> Groups:
    """Count the groups on a branch's line, and those with all attempts correct or all incorrect."""
    return Groups(*sums_on_line(db, branch, _GROUPS))


_GROUPS = """
SELECT count(*), coalesce(sum(status = 'uniform' AND mean_reward >= 1), 0),
       coalesce(sum(status = 'uniform' AND mean_reward <= 0), 0)
  FROM groups WHERE branch_id = ? AND step >= ? AND step < ? AND scored > 0"""


def equal_answers(db: sqlite3.Connection, branch: Branch) -> tuple[int, int]:
    """Count the groups with two or more answers, and how many have identical answers."""
    groups, equal = sums_on_line(db, branch, _EQUAL)
    return groups, equal


_EQUAL = """
SELECT count(*), coalesce(sum(texts = 1), 0)
  FROM (SELECT count(DISTINCT b.response) AS texts
          FROM rollouts r JOIN rollout_bodies b USING (rollout_id)
         WHERE r.branch_id = ? AND r.step >= ? AND r.step < ? AND b.response <> ''
         GROUP BY r.step, r.slot HAVING count(*) > 1)"""


def answer_tokens(db: sqlite3.Connection, branch: Branch) -> list[tuple[int, float, int]]:
    """Return (step, mean tokens per answer, answers) for each step with known token counts."""
    rows = rows_on_line(
        db,
        branch,
        """SELECT step, avg(tokens_out), count(tokens_out) FROM rollouts
            WHERE branch_id = ? AND step >= ? AND step < ? AND tokens_out IS NOT NULL
            GROUP BY step""",
    )
    return sorted((step, mean, n) for step, mean, n in rows)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Rollouts of a run that another verify function scored as well."""

    run: str
    """Run that scored them again."""
    verify: str
    """Name of the verify function that this run uses."""
    rollouts: int
    differ: int
    """Rollouts with a different reward."""


def disagreements(db: sqlite3.Connection, run: str, branch: Branch) -> list[Disagreement]:
    """Return the repeated scorings of the rollouts on a branch's line, with their differences."""
    again = db.execute(
        """SELECT r.run_id, f.name, b.verifier_id FROM runs r
             JOIN branches b ON b.branch_id = r.head_branch JOIN verifiers f USING (verifier_id)
            WHERE r.purpose = 'rejudge' AND r.parent_run_id = ? ORDER BY r.run_id""",
        (run,),
    ).fetchall()
    found = list[Disagreement]()
    for name, verify, verifier_id in again:
        both = differ = 0
        for segment in branch.line:
            n, other = db.execute(
                """SELECT count(*), coalesce(sum(abs(a.reward - b.reward) > ?), 0) FROM rollouts r
                     JOIN verdicts a ON a.rollout_id = r.rollout_id AND a.verifier_id = ?
                     JOIN verdicts b ON b.rollout_id = r.rollout_id AND b.verifier_id = ?
                    WHERE r.branch_id = ? AND r.step >= ? AND r.step < ?
                      AND a.reward IS NOT NULL AND b.reward IS NOT NULL""",
                (AGREE, branch.verifier_id, verifier_id, *segment),
            ).fetchone()
            both, differ = both + n, differ + other
        if both and verifier_id != branch.verifier_id:
            found.append(Disagreement(name, verify, both, differ))
    return found


@dataclass(frozen=True, slots=True)
class Growth:
    """Texts in the libraries of a run, from step to step."""

    sizes: Sequence[int]
    """Number of experiences after each closed step."""
    texts: int
    """Number of different texts in any of these libraries."""
    kept: int
    """Number of these texts that are in the last library."""


def growth(db: sqlite3.Connection, rows: Sequence[StepRow]) -> Growth:
    """Return how the library of a run grew, and how many of its texts remain."""
    # Count by version, because a rewritten experience is another text, even under the same label.
    held = [
        {(eid, version) for _, eid, version in libraries.items(db, row.library_out)}
        for row in rows
        if row.closed and row.library_out
    ]
    ever = set[tuple[int, int]]().union(*held)
    return Growth([len(of) for of in held], len(ever), len(held[-1]) if held else 0)
