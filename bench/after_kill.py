"""How soon a run that was killed late asks again: `kill -9` at 90 % of 100,000 rollouts.

From the start of the new process to its first request; it is then killed in its turn.
"""

from bench.harness import (
    Row,
    at_most,
    cli,
    endpoint,
    folder,
    kill_after,
    seconds_to_first_request,
    write_config,
    write_tasks,
)

K = 8


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure the seconds to the first new request."""
    rollouts = 320 if tiny else 100_000
    with endpoint(size=300) as url, folder() as here:
        write_tasks(here / "tasks.jsonl", rollouts // K)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        work = {"verify": "exact", "concurrency": 64, "pass_k": K}
        write_config(here / "c.yaml", url, evaluation=work)
        words = ("eval", "--config", "c.yaml")
        kill_after(here, url, int(0.9 * rollouts) - 64, *words)
        taken = [seconds_to_first_request(here, url, *words) for _ in range(runs)]
    return [Row("after kill -9: first new request, s", "≤ 5", taken, at_most(5))]
