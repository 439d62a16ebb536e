"""Costs of answers that take a verifier all the time it has: one in a hundred of the symbolic mix.

Such an answer keeps one worker busy until its time limit ends it. Target: the wall time without
them, plus what they take of the workers' time, times 1.1.
"""

import json
from urllib.request import urlopen

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
from bench.symbolic import CONCURRENCY, Pair, mix

SHARE = 0.01
TIMEOUT_S = 2.0
WORKERS = 2
"""The time limit of `math` and its workers, as they are when nothing is said."""


def _evaluation(pairs: list[Pair], share: float) -> tuple[Run, int]:
    """Run one evaluation with that share of hostile answers; return how many they were."""
    with endpoint(size=300, hostile=share) as url, folder() as here:
        write_tasks(here / "tasks.jsonl", len(pairs), pairs)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        write_config(
            here / "c.yaml", url, evaluation={"verify": "math", "concurrency": CONCURRENCY}
        )
        done = run(here, "eval", "--config", "c.yaml")
        with urlopen(url.removesuffix("/v1") + "/stats") as answer:
            return done, int(json.load(answer).get("hostile", 0))


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Compare the wall time with hostile answers with its floor and with none of them."""
    share = 0.05 if tiny else SHARE
    # A word is compared at once, also with something hostile.
    pairs = [pair for pair in mix(40 if tiny else 4_000) if not pair[0].isalpha()]
    of_allowed, of_clean, hostile = list[float](), list[float](), list[Run]()
    count = 0
    for _ in range(runs):
        clean, _ = _evaluation(pairs, 0.0)
        bad, count = _evaluation(pairs, share)
        clean_s, bad_s = float(clean.document["seconds"]), float(bad.document["seconds"])
        of_allowed.append(bad_s / (clean_s + count * TIMEOUT_S / WORKERS))
        of_clean.append(bad_s / clean_s)
        hostile.append(bad)
    title = f"eval, symbolic mix, {share:.0%} hostile"
    name = f"{title}: wall / (clean wall + hostile * timeout / workers)"
    return [
        Row(name, "≤ 1.1", of_allowed, at_most(1.1), {"hostile answers": count}),
        Row(f"{title}: wall / clean wall", "", of_clean),
        Row(f"{title}: peak MB of the largest child", "", [r.children_peak_mb for r in hostile]),
        *stalls(title, hostile),
    ]
