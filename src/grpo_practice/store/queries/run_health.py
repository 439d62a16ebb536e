"""Health of a run: failures during the run, and conditions that affect its results."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grpo_practice.store import step_totals
from grpo_practice.store.branches import rows_on_line
from grpo_practice.store.queries.spending import OF_RUN
from grpo_practice.store.records import Branch
from grpo_practice.store.step_totals import UNSUMMED


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Groups of a practice step in which fewer attempts count than were planned."""

    step: int
    planned: int
    scored: int
    groups: int


@dataclass(frozen=True, slots=True)
class Health:
    """Counts over a run's line; counts of requests cover all requests that the run ever made."""

    mute: int = 0
    """Answers cut before their first character: all tokens went into reasoning."""
    unasked: int = 0
    """Answers that the user's own agent gave without a model request to the rollout's address."""
    unanswered: Mapping[str, int] = field(default_factory=dict)
    """Failure (`HTTP 503`, `cut`, `deadline`, `refused`, …) → failed requests, most frequent first.

    The outage behind a failure may have ended since.
    """
    maybe_paid: int = 0
    """Failed requests that the endpoint may have billed."""
    uncounted: int = 0
    """Replies without a token count, and so without a cost."""
    retried: int = 0
    """Requests that were answered after at least one retry."""
    shrunk: Sequence[Shrunk] = ()
    timed_out: int = 0
    """Rollouts that our own deadline ended."""
    lost: int = 0
    """Rollouts without a reward for any other reason."""
    untaught: int = 0
    """Groups and merges that failed because a request got no answer."""
    seedless: int = 0
    """Replies to requests without a seed."""
    answered_by: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Requested model → `model@host` that answered → number of replies, most frequent first."""


def health_of(db: sqlite3.Connection, branch: Branch, *, children: bool = False) -> Health:
    """Return the health of a run; with `children`, also count the requests of the runs it made."""
    ended = Counter[str]()
    for row in rows_on_line(db, branch, _ROLLOUTS):
        ended.update(dict(row))
    # `_ROLLOUTS` only reads steps without stored totals.
    for _, of in step_totals.on_line(db, branch):
        ended.update(mute=of.mute, late=of.late, unasked=of.unasked)
    shrunk = [Shrunk(**row) for row in rows_on_line(db, branch, _SHRUNK)]
    seedless, replies = 0, dict[str, Counter[str]]()
    for asked, answered, n, without in _over_calls(db, branch):
        seedless += without
        replies.setdefault(asked, Counter())[answered] += n
    return replace(
        _requests(db, branch.run, children=children),
        mute=ended["mute"],
        unasked=ended["unasked"],
        shrunk=sorted(shrunk, key=lambda groups: groups.step),
        timed_out=ended["late"],
        lost=ended["lost"],
        untaught=sum(n for (n,) in rows_on_line(db, branch, _UNTAUGHT)),
        seedless=seedless,
        answered_by={asked: dict(by.most_common()) for asked, by in replies.items()},
    )


_ROLLOUTS = f"""
SELECT coalesce(sum(r.outcome = 'truncated' AND r.head = ''), 0) AS mute,
       coalesce(sum(r.outcome = 'ok' AND r.turns = 0), 0) AS unasked,
       coalesce(sum(r.outcome = 'limit' AND r.reason = 'time'), 0) AS late,
       coalesce(sum(v.reward IS NULL AND NOT (r.outcome = 'limit' AND r.reason IS 'time')), 0)
         AS lost
{UNSUMMED}"""

_SHRUNK = """
SELECT step, planned, scored, count(*) AS groups FROM groups
 WHERE branch_id = ? AND step >= ? AND step < ? AND scored < planned
 GROUP BY 1, 2, 3 ORDER BY 1, 3 DESC"""

_UNTAUGHT = """
SELECT s.unanswered + (SELECT count(*) FROM groups g
                         WHERE g.branch_id = s.branch_id AND g.step = s.step AND g.unanswered)
  FROM steps s WHERE s.branch_id = ? AND s.step >= ? AND s.step < ?"""
"""Steps and groups to retry: a missing answer may arrive later, whereas an unreadable reply would
be replayed.
"""


def _over_calls(db: sqlite3.Connection, branch: Branch) -> Iterator[sqlite3.Row]:
    """Yield (model, answered by, replies, replies without a seed), also for reused branches."""
    for segment in branch.line:
        holders = (segment.branch_id, *(branch.reuses if segment.branch_id == branch.id else ()))
        for holder in holders:
            yield from db.execute(
                """SELECT c.name, c.answered_by, sum(calls), sum((NOT seeded) * calls)
                     FROM steps s JOIN call_sums c
                       ON c.branch_id = coalesce(s.played_by, :holder) AND c.step = +s.step
                    WHERE s.branch_id = :branch AND s.step >= :first AND s.step < :end
                      AND (s.played_by IS NULL OR :holder = :branch)
                    GROUP BY 1, 2""",
                {
                    "holder": holder,
                    "branch": segment.branch_id,
                    "first": segment.first,
                    "end": segment.end,
                },
            )


def _requests(db: sqlite3.Connection, run: str, *, children: bool) -> Health:
    """Return the request counts over all invocations and branches, since all of them cost money."""
    which = {"run": run, "children": children}
    failed = db.execute(
        f"SELECT {_KIND}, count(*), sum(maybe_paid) FROM failures f {OF_RUN} GROUP BY 1", which
    ).fetchall()
    kinds = Counter({str(kind): int(n) for kind, n, _ in failed})
    uncounted, retried = db.execute(
        f"""SELECT coalesce(sum((NOT counted AND NOT priced) * calls), 0), coalesce(sum(retried), 0)
              FROM call_sums {OF_RUN}""",
        which,
    ).fetchone()
    return Health(
        unanswered=dict(kinds.most_common()),
        maybe_paid=sum(paid for _, _, paid in failed),
        uncounted=uncounted,
        retried=retried,
    )


_KIND = """CASE
  WHEN f.broken = 'deadline' THEN 'deadline'
  WHEN f.kind = 'interrupted' THEN 'cancelled'
  WHEN f.kind NOT IN ('provider', 'endpoint') THEN replace(f.kind, '_', ' ')
  WHEN f.http_status >= 300 THEN 'HTTP ' || f.http_status
  WHEN f.broken = 'cut' THEN 'cut'
  WHEN f.broken IN ('tls', 'proxy', 'connect') THEN 'refused'
  ELSE 'no usable answer' END"""
"""SQL that names the kind of a stored failure."""
