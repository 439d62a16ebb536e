"""A whole practice run: against its ideal makespan, and what a rollout of it costs the driver.

100 questions x 5 attempts x 3 epochs in batches of 50 (six steps, 1,500 rollouts, about 2,500
requests), 64 at once. The wall is the command's own `seconds`: from the run's opening to its
report, the imports and the interpreter's start left out. CPU is that of the whole process.
"""

from dataclasses import dataclass
from typing import Any

from bench.draws import Draws, Latency
from bench.harness import (
    Row,
    Run,
    at_most,
    cli,
    endpoint,
    folder,
    run,
    stalls,
    write_config,
    write_tasks,
)
from bench.ideal import RAMP, Makespan, makespan, recorded

CONCURRENCY = 64
SLOW = "lognormal:0.3,0.8,5"
RIGHT = 0.88
"""The share of right attempts that leaves 47 % of the groups mixed: about 2,500 requests."""
OVERLAPS = (0.0, 0.25, 0.5, 1.0)
OVERLAP = 0.5
"""Latency that is measured beside 0."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is practised."""

    questions: int = 100
    attempts: int = 5
    epochs: int = 3
    latency: str = SLOW

    @property
    def rollouts(self) -> int:
        """Seconds of the whole run."""
        return self.questions * self.attempts * self.epochs


@dataclass(frozen=True, slots=True)
class Practised:
    """One run, and the least time that its calls need, by overlap."""

    run: Run
    ideal: dict[float, Makespan]
    ramped: Makespan
    chains_s: float
    """The ideal with as many at once as there are."""

    @property
    def seconds(self) -> float:
        """Seconds of the run without start-up."""
        return float(self.run.document["seconds"])


def practised(size: Size, latency: str, **settings: Any) -> Practised:
    """Run practice on an endpoint with that latency; its ideal is that at `size.latency`."""
    draws = Draws(0, Latency.read(size.latency), RIGHT)
    with endpoint(latency=latency, right=RIGHT, size=300) as url, folder() as here:
        write_tasks(here / "tasks.jsonl", size.questions)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        practice = {
            "epochs": size.epochs,
            "batch_size": size.questions // 2,
            "grpo_n": size.attempts,
            "rollout_concurrency": CONCURRENCY,
            **settings,
        }
        write_config(
            here / "c.yaml", url, practice=practice, data={"practice_dataset_name": "tasks"}
        )
        done = run(here, "practice", "--config", "c.yaml")
        steps = recorded(here / "grpo-practice.db", draws)
    overlap = settings.get("overlap", 0.0)
    return Practised(
        done,
        {share: makespan(steps, CONCURRENCY, overlap=share) for share in OVERLAPS},
        makespan(steps, CONCURRENCY, overlap=overlap, ramp=RAMP),
        makespan(steps, 10**9, overlap=overlap).seconds,
    )


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure wall against the ideal, CPU of a rollout, stalls, and what starting early saves."""
    size = Size(4, 3, 1, "uniform:0,0.02") if tiny else Size()
    slow = [practised(size, size.latency) for _ in range(runs)]
    found = [*_walls(slow, 0.0), *stalls("practice, log-normal", [p.run for p in slow])]
    found.append(_early(slow[0]))
    found += _walls([practised(size, size.latency, overlap=OVERLAP) for _ in range(runs)], OVERLAP)
    fast = [practised(size, "0").run for _ in range(runs)]
    per_rollout = [1000 * run.cpu_s / size.rollouts for run in fast]
    least = fast if tiny else [practised(Size(2, 2, 1), "0").run for _ in range(runs)]
    note = {"CPU s of a run of four rollouts: start-up": round(min(r.cpu_s for r in least), 2)}
    name = "practice, zero latency: CPU ms/rollout, integers"
    found.append(Row(name, "≤ 2", per_rollout, at_most(2), note))
    rate = [size.rollouts / float(run.document["seconds"]) for run in fast]
    found.append(Row("practice, zero latency: rollouts/s", "", rate))
    return [*found, *stalls("practice, zero latency", fast)]


def _walls(done: list[Practised], overlap: float) -> list[Row]:
    """Compare the walls of runs with that overlap with the ideal of the same policy."""
    first, what = done[0], f"practice, log-normal, overlap {overlap:g}"
    ideal, busy = first.ideal[overlap], first.ideal[overlap].busy_s
    notes: dict[str, Any] = {
        "ideal, s": round(ideal.seconds, 2),
        "ideal with our opening of the window, s": round(first.ramped.seconds, 2),
        "ideal, in flight": round(ideal.in_flight, 1),
        f"floor: all latencies / {CONCURRENCY}, s": round(busy / CONCURRENCY, 2),
        "floor: the longest chains alone, s": round(first.chains_s, 2),
        "requests": first.run.document["requests"],
    }
    ratios = [p.seconds / ideal.seconds for p in done]
    found = [
        Row(f"{what}: wall / ideal", "≤ 1.10", ratios, at_most(1.10), notes),
        Row(f"{what}: wall, s", "", [p.seconds for p in done]),
        Row(f"{what}: requests in flight", "", [busy / p.seconds for p in done]),
    ]
    if overlap:
        least = first.ideal[0.0].seconds
        name = f"{what}: wall / ideal of overlap 0"
        found.append(Row(name, "< 1", [p.seconds / least for p in done], lambda v: v < 1))
    return found


def _early(done: Practised) -> Row:
    """Compute how much shorter the ideal is when groups may start before their step."""
    least = done.ideal[0.0].seconds
    notes = {
        f"overlap {share:g}": f"{ideal.seconds:.2f} s, {ideal.in_flight:.1f} in flight"
        for share, ideal in done.ideal.items()
    }
    shortest = done.ideal[OVERLAPS[-1]].seconds
    return Row("practice: ideal of overlap 1 / of overlap 0", "", [shortest / least], None, notes)
