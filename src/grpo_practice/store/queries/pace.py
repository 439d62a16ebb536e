"""Speed of the server of a model, from stored calls: how many it answered at once, and how fast."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

CALLS = 1_000
"""Maximum number of calls, newest first, that are read."""
LONG = 16
"""Minimum mean length of replies, in tokens, for a rate: short ones only show a fixed delay."""
_EVER = 2**62


@dataclass(frozen=True, slots=True)
class Pace:
    """Speed of a server."""

    at_once: float
    """Mean number of requests in flight while there were any.

    The time of a request divided by it is the time that the request costs the run, whether the
    server computed the others meanwhile or let them wait.
    """
    token_s: float | None
    """Seconds of a request per output token, waits included; None if replies are too short."""


def pace(db: sqlite3.Connection, name: str, first: int = 0, last: int = _EVER) -> Pace | None:
    """Return the speed of the server that answers for a model, or None without a call.

    All calls to that server count, also by other runs and roles, because they share it.

    Args:
        db: The database.
        name: Model, as asked for.
        first: ID of the first call to use.
        last: ID of the last call to use.
    """
    rows = db.execute(
        """SELECT name, answered_by, seconds, tokens_out, julianday(created_at) * 86400.0 AS ended
             FROM calls WHERE call_id BETWEEN ? AND ? AND role <> 'tool' AND seconds > 0
            ORDER BY call_id DESC LIMIT ?""",
        (first, last, CALLS),
    ).fetchall()
    server = next((_host(row) for row in rows if row["name"] == name), None)
    calls = [row for row in rows if _host(row) == server]
    if server is None:
        return None
    seconds = sum(row["seconds"] for row in calls)
    busy = _union([(row["ended"] - row["seconds"], row["ended"]) for row in calls])
    own = [row for row in calls if row["name"] == name and row["tokens_out"]]
    tokens = sum(row["tokens_out"] for row in own)
    is_long = tokens >= LONG * max(len(own), 1)
    token_s = sum(row["seconds"] for row in own) / tokens if is_long else None
    return Pace(max(seconds / busy, 1.0), token_s)


def _host(row: sqlite3.Row) -> str:
    return str(row["answered_by"] or "").rpartition("@")[2]


def _union(spans: Sequence[tuple[float, float]]) -> float:
    """Return the length of the time that the spans cover together."""
    covered, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(end - max(start, until), 0.0)
        until = max(until, end)
    return covered
