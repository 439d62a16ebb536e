"""The makespan of a practice run without any overhead: nothing but the endpoint's latencies.

    python -m bench.ideal DATABASE [--latency lognormal:0.3,0.8,5] [--concurrency 64] [--overlap 0]

Simulated event by event, from the calls of a finished run and the latencies that the benchmark
endpoint draws for them. The policy is the program's: rollouts start in the order of the plan, the
teacher goes before the student, a group is distilled when its last rollout is there, and the merge
ends the step. No reply is ever waited for longer than it takes, and none takes time to read.
"""

import argparse
import heapq
import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from bench.draws import Draws, Latency
from grpo_practice.core.hashing import derive_seed
from grpo_practice.llm.concurrency import GROWTH_S, START

TEACHER, STUDENT = 0, 1
RAMP = (START, GROWTH_S)
"""The window that the program begins with, and after how many seconds it doubles."""
Then = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Work:
    """One group, as the seconds of its calls."""

    rollouts: Sequence[float]
    summaries: Sequence[float] = ()
    after: Sequence[float] = ()
    """The comparison, then the proposal."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its groups in the order of the plan, then its merge."""

    groups: Sequence[Work]
    merge: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Makespan:
    """How long a run takes, at the least."""

    seconds: float
    busy_s: float
    """Seconds of all its requests together."""

    @property
    def in_flight(self) -> float:
        """Requests at once, on average."""
        return self.busy_s / self.seconds if self.seconds else 0.0


def makespan(
    steps: Sequence[Step],
    concurrency: int,
    *,
    overlap: float = 0.0,
    ramp: tuple[int, float] | None = None,
) -> Makespan:
    """Compute how long these steps take with so many requests in flight at once.

    Args:
        steps: What has to be done.
        concurrency: The most requests in flight.
        overlap: The share of a step's groups, its first ones, that may start before their step.
        ramp: The first window, and after how many seconds it doubles; without, all is open at once.
    """
    endpoint = _Endpoint(concurrency, ramp)
    _Run(steps, endpoint, overlap).begin(0)
    endpoint.run()
    return Makespan(endpoint.now, endpoint.busy_s)


@dataclass(slots=True)
class _Endpoint:
    """Simulated time, and a window of requests in flight; of those that wait, the least order."""

    n: int
    ramp: tuple[int, float] | None
    now: float = 0.0
    busy_s: float = 0.0
    held: int = 0
    window: int = 0
    growing: bool = False
    turns: Iterator[int] = field(default_factory=count)
    waiting: list[tuple[tuple[int, ...], int, float, Then]] = field(default_factory=list)
    events: list[tuple[float, int, Then]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.window = min(self.n, self.ramp[0]) if self.ramp else self.n

    def each(self, order: tuple[int, ...], seconds: Sequence[float], then: Then) -> None:
        """Ask for all of these at once; `then` comes with the last reply."""
        left = len(seconds)

        def back() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for one in seconds:
            heapq.heappush(self.waiting, (order, next(self.turns), one, back))
        if not seconds:
            then()

    def chain(self, order: tuple[int, ...], seconds: Sequence[float], then: Then) -> None:
        """Ask for one after another; `then` comes with the last reply."""
        if seconds:
            rest = partial(self.chain, order, seconds[1:], then)
            self.each(order, seconds[:1], rest)
        else:
            then()

    def run(self) -> None:
        """Run until nothing waits and nothing is in flight."""
        self._let_in()
        while self.events:
            self.now, _, happen = heapq.heappop(self.events)
            happen()
            self._let_in()  # afterwards, so that what a reply leads to may take its place

    def _let_in(self) -> None:
        while self.waiting and self.held < self.window:
            _, _, seconds, then = heapq.heappop(self.waiting)
            self.held += 1
            self.busy_s += seconds
            self._after(seconds, partial(self._reply, then))
        if self.ramp and self.waiting and not self.growing and self.window < self.n:
            self.growing = True
            self._after(self.ramp[1], self._grow)

    def _after(self, seconds: float, happen: Then) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.turns), happen))

    def _reply(self, then: Then) -> None:
        self.held -= 1
        then()

    def _grow(self) -> None:
        self.growing = False
        self.window = min(self.n, 2 * self.window)


@dataclass(slots=True)
class _Group:
    """A group under way."""

    step: int
    slot: int
    work: Work
    asked: bool = False
    there: bool = False
    """True once the rollouts of the group have ended."""


class _Run:
    """The steps of a run, one after another."""

    def __init__(self, steps: Sequence[Step], endpoint: _Endpoint, overlap: float) -> None:
        self._groups = [
            [_Group(k, slot, work) for slot, work in enumerate(step.groups)]
            for k, step in enumerate(steps)
        ]
        self._steps, self._endpoint, self._overlap = steps, endpoint, overlap
        self._step = 0
        self._open = 0
        """Groups of the step that are not distilled."""

    def begin(self, step: int) -> None:
        """Play a step, and the early groups of the next one wherever there is room."""
        self._step = step
        if step == len(self._steps):
            return
        groups = self._groups[step]
        self._open = len(groups)
        there = [group for group in groups if group.there]
        for group in groups:
            self._play(group)
        for following in self._groups[step + 1 : step + 2]:
            for group in following[: math.floor(self._overlap * len(following) + 1e-9)]:
                self._play(group)
        for group in there:
            self._ended(group)

    def _play(self, group: _Group) -> None:
        if not group.asked:
            group.asked = True
            order = (STUDENT, group.step, group.slot)
            self._endpoint.each(order, group.work.rollouts, partial(self._played, group))

    def _played(self, group: _Group) -> None:
        group.there = True
        if group.step == self._step:  # an early group waits for its step
            self._ended(group)

    def _ended(self, group: _Group) -> None:
        """Distil a group whose rollouts have ended."""
        work, order = group.work, (TEACHER,)
        after = partial(self._endpoint.chain, order, work.after, self._closed)
        self._endpoint.each(order, work.summaries, after)

    def _closed(self) -> None:
        self._open -= 1
        if not self._open:
            merge = self._steps[self._step].merge
            self._endpoint.chain((TEACHER,), merge, partial(self.begin, self._step + 1))


def plain_floor(steps: Sequence[Step], concurrency: int) -> float:
    """Return the seconds of all requests together, divided by how many may be in flight."""
    return makespan(steps, 1).seconds / concurrency


def recorded(database: Path, draws: Draws, run_seed: int = 0) -> list[Step]:
    """Read the calls of a practice run, each with the seconds the endpoint draws for it.

    Raises:
        ValueError: A call was asked for again, and its seconds are not known.
    """
    with closing(sqlite3.connect(database)) as db:
        planned = db.execute(
            """SELECT step, epoch, plan FROM steps s JOIN runs r ON r.head_branch = s.branch_id
                WHERE r.kind = 'practice' ORDER BY step"""
        ).fetchall()
        shas = dict(db.execute("SELECT sample_id, lower(hex(sha256)) FROM samples"))
        calls = db.execute(
            """SELECT step, slot, attempt, stage FROM calls c
                  JOIN runs r ON r.head_branch = c.branch_id AND r.kind = 'practice'
                 ORDER BY 1, 2, 3"""
        ).fetchall()
    if len(set(calls)) < len(calls):
        raise ValueError(f"{database}: some calls were asked for again")
    plans = {step: (epoch, json.loads(plan)) for step, epoch, plan in planned}
    seconds = defaultdict[tuple[int, int, str], list[float]](list)
    for step, slot, attempt, stage in calls:
        epoch, plan = plans[step]
        sha = "" if slot < 0 else shas[plan[slot][0]]
        drawn = draws.latency_s(derive_seed(run_seed, stage, sha, epoch, attempt, 0))
        seconds[step, slot, stage].append(drawn)

    def work(step: int, slot: int) -> Work:
        stages = ("play", "summarise", "compare", "propose")
        rollouts, summaries, compare, propose = (seconds[step, slot, stage] for stage in stages)
        return Work(rollouts, summaries, [*compare, *propose])

    return [
        Step([work(step, slot) for slot in range(len(plan))], seconds[step, -1, "merge"])
        for step, (_, plan) in plans.items()
    ]


def main() -> None:
    """Print what a finished run would take at the least."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", type=Path)
    parser.add_argument("--latency", default="lognormal:0.3,0.8,5", help=Latency.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the endpoint")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--overlap", type=float, default=0.0)
    given = parser.parse_args()
    steps = recorded(given.database, Draws(given.seed, Latency.read(given.latency)))
    for name, ramp in (("all open at once", None), (f"window from {RAMP[0]}", RAMP)):
        found = makespan(steps, given.concurrency, overlap=given.overlap, ramp=ramp)
        print(f"{name}: {found.seconds:.2f} s, {found.in_flight:.1f} in flight")
    print(f"sum / {given.concurrency}: {found.busy_s / given.concurrency:.2f} s")
    print(f"without end at once: {makespan(steps, 10**9, overlap=given.overlap).seconds:.2f} s")


if __name__ == "__main__":
    main()
