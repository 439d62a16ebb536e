"""Many requests in flight at once, over plain connections, after the window has opened.

256 at 1 s latency ± 10 %: 95 % of 256 requests a second, and the client adds at most 50 ms to all
but one call in a hundred. 2,000 at 10 s: 90 % of 200 a second, no error, 400 MB.

The window opens from 16 and doubles every half second, so the figures are of the calls that ended
in `Size.window_s` once it was open and its first replies were there. Added latency is the client's
seconds of a call, connecting included, less those that the endpoint drew for it.
"""

import json
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench.draws import Draws, Latency
from bench.harness import (
    Row,
    Run,
    at_least,
    at_most,
    cli,
    endpoint,
    folder,
    run,
    stalls,
    write_config,
    write_tasks,
)
from grpo_practice.core.hashing import derive_seed
from grpo_practice.llm.concurrency import GROWTH_S, START

K = 8
SPREAD = 0.1
"""A call takes so much more or less than the latency."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many requests at once, each of how long, and how long it is looked at."""

    n: int
    latency_s: float
    window_s: float = 20.0

    @property
    def latency(self) -> str:
        """As the endpoint takes it."""
        return f"uniform:{self.latency_s * (1 - SPREAD)},{self.latency_s * (1 + SPREAD)}"

    @property
    def ramp_s(self) -> float:
        """Until the window is open, and the first replies of an open one have come."""
        opening_s = GROWTH_S * math.ceil(math.log2(max(1.0, self.n / START)))
        return opening_s + self.latency_s * (1 + SPREAD) + 1.0

    @property
    def per_second(self) -> float:
        """Requests a second, if nothing but the latency took time."""
        return self.n / self.latency_s

    @property
    def rollouts(self) -> int:
        """Enough for the ramp and the window, with some left in flight at its end."""
        seconds = self.ramp_s + self.window_s
        return math.ceil((self.per_second * seconds + self.n) / K) * K


@dataclass(frozen=True, slots=True)
class Held:
    """Figures of one evaluation."""

    run: Run
    per_second: float
    in_flight: float
    """Requests under way, on average over the window."""
    added_ms: Sequence[float]
    """Times of each call, sorted."""
    failed: int
    """Requests without an answer, and those that were sent again."""

    def added(self, share: float) -> float:
        """Return the most that the client added to that share of the calls."""
        return self.added_ms[min(len(self.added_ms) - 1, int(share * len(self.added_ms)))]


def held(size: Size) -> Held:
    """Run one evaluation of that size."""
    with endpoint(latency=size.latency, size=300) as url, folder() as here:
        write_tasks(here / "tasks.jsonl", size.rollouts // K)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        work = {"verify": "exact", "concurrency": size.n, "pass_k": K}
        write_config(here / "c.yaml", url, evaluation=work)
        done = run(here, "eval", "--config", "c.yaml")
        database = next(here.rglob("*.db"))
        return _looked_at(done, database, size)


def _looked_at(done: Run, database: Path, size: Size) -> Held:
    draws = Draws(0, Latency.read(size.latency))
    with closing(sqlite3.connect(database)) as db:
        shas = dict(db.execute("SELECT sample_id, lower(hex(sha256)) FROM samples"))
        plans = {
            (branch, step): (epoch, json.loads(plan))
            for branch, step, epoch, plan in db.execute(
                "SELECT branch_id, step, epoch, plan FROM steps"
            )
        }
        calls = db.execute(
            "SELECT branch_id, step, slot, attempt, seconds, tries, created_at FROM calls"
        ).fetchall()
        (failed,) = db.execute("SELECT count(*) FROM failures").fetchone()
    spans, added = list[tuple[float, float]](), list[float]()
    for branch, step, slot, attempt, seconds, _, created_at in calls:
        ended = datetime.fromisoformat(created_at).timestamp()
        spans.append((ended - seconds, ended))
        epoch, plan = plans[branch, step]
        seed = derive_seed(0, "play", shas[plan[slot][0]], epoch, attempt, 0)
        added.append(1000 * (seconds - draws.latency_s(seed)))
    begin = min(start for start, _ in spans) + size.ramp_s
    end = begin + size.window_s
    within = [i for i, (_, ended) in enumerate(spans) if begin <= ended < end]
    busy_s = sum(max(0.0, min(e, end) - max(s, begin)) for s, e in spans)
    return Held(
        run=done,
        per_second=len(within) / size.window_s,
        in_flight=busy_s / size.window_s,
        # Of all calls where none ended in time: the rate of 0 then tells how slow the machine was.
        added_ms=sorted(added[i] for i in within or range(len(added))),
        failed=failed + sum(tries > 1 for *_, tries, _ in calls),
    )


def _rows(size: Size, runs: int, share: float) -> tuple[str, list[Held], list[Row]]:
    """Return the rows of every size, first the rate: at least that share of what is possible."""
    name = f"{size.n:,} in flight, {size.latency_s:g} s"
    found = [held(size) for _ in range(runs)]
    least = share * size.per_second
    rates = [h.per_second for h in found]
    in_flight = [round(h.in_flight, 1) for h in found]
    rate = Row(f"{name}: requests/s", f"≥ {least:.0f}", rates, at_least(least))
    rate.notes = {"in flight on average": in_flight}
    errors = [float(h.failed) for h in found]
    cpu = [1000 * h.run.cpu_s / size.rollouts for h in found]
    told = [
        rate,
        Row(f"{name}: failed or sent again", "0", errors, at_most(0)),
        Row(f"{name}: CPU ms/rollout", "", cpu),
        *stalls(name, [h.run for h in found]),
    ]
    return name, found, told


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure 256 at once and 2,000 at once."""
    few = Size(8, 0.05, 0.2) if tiny else Size(256, 1.0)
    many = Size(24, 0.1, 0.2) if tiny else Size(2_000, 10.0)
    few_name, few_found, few_rows = _rows(few, runs, 0.95)
    p99 = [h.added(0.99) for h in few_found]
    added = Row(f"{few_name}: added latency p99, ms", "≤ 50", p99, at_most(50))
    added.notes = {"median, ms": [round(h.added(0.5), 2) for h in few_found]}
    many_name, many_found, many_rows = _rows(many, runs, 0.9)
    peak = [h.run.peak_mb for h in many_found]
    memory = Row(f"{many_name}: peak memory, MB", "≤ 400", peak, at_most(400))
    late = [h.added(0.99) for h in many_found]
    late_row = Row(f"{many_name}: added latency p99, ms", "", late)
    return [*few_rows, added, *many_rows, memory, late_row]
