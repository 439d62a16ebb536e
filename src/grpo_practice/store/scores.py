"""What a run's rollouts add up to, counted by the database over the run's line."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from grpo_practice.calls import Usage
from grpo_practice.metrics import Question
from grpo_practice.store.records import Branch
from grpo_practice.store.rollouts import JUDGED
from grpo_practice.store.spending import OF_RUN
from grpo_practice.types import STRIKES

# `+s.step` keeps SQLite from spreading the range of steps to rollouts, which would read all of them
# once a step.
_LINE = """
  FROM steps s
  JOIN branches b ON b.branch_id = s.branch_id
  JOIN rollouts r ON r.branch_id = coalesce(s.played_by, s.branch_id) AND r.step = +s.step
  LEFT JOIN verdicts v ON v.rollout_id = r.rollout_id AND v.judge_id = b.judge_id
 WHERE s.branch_id = ? AND s.step >= ? AND s.step < ?
"""


@dataclass(frozen=True, slots=True)
class Requests:
    """How calls were answered, counted over invocations."""

    new: int
    failed: int


def questions(db: sqlite3.Connection, branch: Branch) -> list[Question]:
    """A tally per planned question of an evaluation, in plan order."""
    planned = dict[tuple[int, int], int]()
    tallies = dict[tuple[int, int], sqlite3.Row]()
    for segment in branch.line:
        place = (segment.branch_id, segment.first, segment.end)
        for step, text in db.execute(
            "SELECT step, plan FROM steps WHERE branch_id = ? AND step >= ? AND step < ?", place
        ):
            planned |= {(step, slot): k for slot, (_, k) in enumerate(json.loads(text))}
        for row in db.execute(
            f"""SELECT r.step, r.slot, q.sample_id, q.source, q.cluster, count(v.reward) AS n,
                  coalesce(sum(v.reward >= 1 - 1e-9), 0) AS c,
                  coalesce(sum(v.reward), 0.0) AS total,
                  coalesce(sum(v.reward * v.reward), 0.0) AS total_sq
             {_LINE.replace(" WHERE", " JOIN samples q ON q.sample_id = r.sample_id WHERE")}
             GROUP BY r.step, r.slot""",
            place,
        ):
            tallies[row["step"], row["slot"]] = row
    return [_question(k, n, tallies.get(k)) for k, n in sorted(planned.items())]


def _question(place: tuple[int, int], planned: int, row: sqlite3.Row | None) -> Question:
    key = f"{place[0]}.{place[1]}"
    if row is None:
        return Question(key=key, n=0, c=0, total=0.0, total_sq=0.0, planned=planned)
    return Question(
        key=key,
        n=row["n"],
        c=row["c"],
        total=row["total"],
        total_sq=row["total_sq"],
        planned=planned,
        source=row["source"],
        cluster=row["cluster"] or f"sample {row['sample_id']}",  # asked twice, it is one question
    )


def _over_line(
    db: sqlite3.Connection, branch: Branch, select: str, tail: str
) -> Iterator[sqlite3.Row]:
    """The rows of a query over every rollout of the branch's line, segment by segment."""
    for segment in branch.line:
        place = (segment.branch_id, segment.first, segment.end)
        yield from db.execute(f"SELECT {select} {_LINE} {tail}", place)


def outcomes(db: sqlite3.Connection, branch: Branch) -> dict[str, int]:
    """How many rollouts ended how, by `ok`, `truncated`, `error.provider` and so on."""
    counts: Counter[str] = Counter()
    rows = _over_line(db, branch, f"{JUDGED}, count(*)", "GROUP BY 1, 2")
    for outcome, reason, _, n in rows:
        counts[f"{outcome}.{reason}" if reason else outcome] += n
    return dict(sorted(counts.items()))


def failures(db: sqlite3.Connection, branch: Branch) -> dict[str, int]:
    """The errors of failed rollouts, commonest first, with how often each came."""
    counts: Counter[str] = Counter()
    tail = "AND judged_outcome = 'error' GROUP BY 3"
    for _, _, error, n in _over_line(db, branch, f"{JUDGED}, count(*)", tail):
        counts[str(error)] += n
    return dict(counts.most_common())


def seconds_per_rollout(db: sqlite3.Connection, branch: Branch) -> float | None:
    """Mean seconds that the model took for a scored rollout; None without any."""
    select = "coalesce(sum(r.model_ms), 0), count(*)"
    rows = list(_over_line(db, branch, select, "AND v.reward IS NOT NULL"))
    n = sum(count for _, count in rows)
    return sum(ms for ms, _ in rows) / n / 1000 if n else None


def missing(db: sqlite3.Connection, branch: Branch) -> int:
    """How many planned rollouts have no row yet."""
    planned = sum(q.planned for q in questions(db, branch))
    return planned - sum(outcomes(db, branch).values())


def there(db: sqlite3.Connection, branch: Branch) -> dict[int, int]:
    """Step → its rollouts that are settled, where it has any."""
    tail = f"AND (v.reward IS NOT NULL OR r.strikes >= {STRIKES}) GROUP BY 1"
    return {int(step): int(n) for step, n in _over_line(db, branch, "r.step, count(*)", tail)}


def asked_with(db: sqlite3.Connection, exp_id: str, system_sha: bytes) -> list[tuple[str, int]]:
    """The evaluations of an experiment asked with this system prompt, newest first: run, branch."""
    rows = db.execute(
        """SELECT run_id, head_branch FROM runs u WHERE exp_id = ? AND kind = 'eval' AND EXISTS
             (SELECT 1 FROM rollouts r WHERE r.branch_id = u.head_branch AND r.system_sha = ?)
            ORDER BY u.created_at DESC""",
        (exp_id, system_sha),
    )
    return [(run, branch) for run, branch in rows]


def usage(db: sqlite3.Connection, run: str, *, children: bool = False) -> Usage:
    """Tokens and money of every call that a run made, as far as they are known.

    All branches: money spent is spent. With `children`, also those of the runs that it made.
    """
    row = db.execute(
        f"""SELECT sum(tokens_in), sum(tokens_cached), sum(tokens_out), sum(tokens_reasoning),
                   sum(cost_micro) FROM calls {OF_RUN}""",
        {"run": run, "children": children},
    ).fetchone()
    return Usage(*row)


def unpriced(db: sqlite3.Connection, run: str, *, children: bool = False) -> dict[str, int]:
    """Model → calls of which it is not known what they cost, where there are any; see `usage`."""
    rows = db.execute(
        f"""SELECT name, count(*) FROM calls {OF_RUN} AND cost_micro IS NULL
            GROUP BY 1 ORDER BY 2 DESC, 1""",
        {"run": run, "children": children},
    )
    return {str(name): int(n) for name, n in rows}


def step_costs(db: sqlite3.Connection, branch: Branch) -> dict[int, int | None]:
    """Micro-dollars by step, of the calls that the branch holding it made; None where unknown."""
    found = dict[int, int | None]()
    for segment in branch.line:
        found |= dict(
            db.execute(
                """SELECT step, CASE WHEN sum(cost_micro IS NULL) = 0 THEN sum(cost_micro) END
                     FROM calls WHERE branch_id = ? AND step >= ? AND step < ? GROUP BY step""",
                (segment.branch_id, segment.first, segment.end),
            ).fetchall()
        )
    return found


def requests(db: sqlite3.Connection, invocation_id: int, *, children: bool = False) -> Requests:
    """How many requests an invocation made; with `children`, in the runs it made on its way too."""
    new, failed = db.execute(
        """WITH mine AS (
             SELECT i.invocation_id FROM invocations i JOIN runs r USING (run_id)
               JOIN invocations m ON m.invocation_id = :i
              WHERE i.invocation_id = :i
                 OR (:children AND i.invocation_id > :i AND r.parent_run_id = m.run_id))
           SELECT (SELECT count(*) FROM calls WHERE invocation_id IN mine),
                  (SELECT count(*) FROM failures WHERE invocation_id IN mine)""",
        {"i": invocation_id, "children": children},
    ).fetchone()
    return Requests(new, failed)
