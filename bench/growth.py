"""Costs of an evaluation as it grows: CPU, wall and memory at 1,000, 10,000, 100,000 rollouts.

Answers have 2 KB. An exponent is the slope of log cost over log rollouts, by least squares; 1 is
linear, and less than 1 means that the start weighs on small runs.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

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

K = 8
SIZES, TINY = (1_000, 10_000, 100_000), (40, 80, 160)


def evaluation(rollouts: int) -> Run:
    """Run one evaluation with `exact`, eight rollouts of each question, 64 at once."""
    with endpoint(size=2048) as url, folder() as here:
        write_tasks(here / "tasks.jsonl", rollouts // K)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        work = {"verify": "exact", "concurrency": 64, "pass_k": K}
        write_config(here / "c.yaml", url, evaluation=work)
        return run(here, "eval", "--config", "c.yaml")


def exponent(costs: Mapping[int, float]) -> float:
    """Return the slope of log cost over log size."""
    sizes = [math.log(size) for size in costs]
    slope = statistics.linear_regression(sizes, [math.log(c) for c in costs.values()]).slope
    return float(slope)


def _median(runs: Sequence[Run], name: str) -> float:
    return float(statistics.median(getattr(r, name) for r in runs))


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure the exponents, and memory at the two larger sizes; the largest runs once."""
    sizes = TINY if tiny else SIZES
    done = {n: [evaluation(n) for _ in range(1 if n == sizes[-1] else runs)] for n in sizes}
    found = list[Row]()
    for name in ("cpu_s", "wall_s"):
        costs = {n: _median(of, name) for n, of in done.items()}
        told = {f"{n} rollouts, ms each": round(1000 * c / n, 3) for n, c in costs.items()}
        grown = Row(f"growth: {name} exponent", "≤ 1.05", [exponent(costs)], at_most(1.05), told)
        found.append(grown)
    for n in sizes[1:]:
        peaks = [r.peak_mb for r in done[n]]
        found.append(Row(f"growth: driver's peak MB at {n}", "≤ 250", peaks, at_most(250)))
    children = [r.children_peak_mb for r in done[sizes[-1]]]
    found.append(Row("growth: largest child, MB", "", children))
    return found + stalls(f"eval of {sizes[-1]}", done[sizes[-1]])
