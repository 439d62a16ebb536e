"""How many rollouts of an evaluation a second, when the endpoint needs no time at all.

The endpoint has one core, the command the other. Target: 800/s with `exact`, 600/s with `math` on
integers.
"""

from collections.abc import Sequence

from bench.harness import (
    Row,
    Run,
    at_least,
    cli,
    endpoint,
    folder,
    run,
    stalls,
    write_config,
    write_tasks,
)

CONCURRENCY = 64
K = 8
Pairs = Sequence[tuple[str, str, str]]


def evaluation(verify: str, rollouts: int, pairs: Pairs | None = None) -> Run:
    """Run one evaluation of that many rollouts, eight of each question."""
    with endpoint(size=300) as url, folder() as here:
        write_tasks(here / "tasks.jsonl", rollouts // K, pairs)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        work = {"verify": verify, "concurrency": CONCURRENCY, "pass_k": K}
        write_config(here / "c.yaml", url, evaluation=work)
        return run(here, "eval", "--config", "c.yaml")


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure rollouts a second by verify function, and what each cost the driver."""
    rollouts = 160 if tiny else 16_000
    found = list[Row]()
    for verify, least in (("exact", 800), ("math", 600)):
        done = [evaluation(verify, rollouts) for _ in range(runs)]
        rate = [rollouts / float(r.document["seconds"]) for r in done]
        found += [
            Row(f"eval, {verify}: rollouts/s", f"≥ {least}", rate, at_least(least)),
            Row(f"eval, {verify}: CPU ms/rollout", "", [1000 * r.cpu_s / rollouts for r in done]),
            *stalls(f"eval, {verify}", done),
        ]
    return found
