"""Cost of traces: CPU of a rollout beside a run without them, and what a bad collector holds up.

An evaluation whose endpoint needs no time and whose answers have 2 KB, and a practice of one epoch.
The collector takes all at once, so that what is measured is the sender alone. CPU is that of the
whole process, the start taken off; runs with and without traces take turns.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.request import urlopen

from bench.harness import (
    ROOT,
    Row,
    Run,
    at_most,
    cli,
    endpoint,
    folder,
    run,
    write_config,
    write_tasks,
)

CONCURRENCY = 64
K = 8
BYTES = 2048
RIGHT = 0.88
"""The share of right attempts with which about half of the groups teach."""
VARIABLE = "PHOENIX_COLLECTOR_ENDPOINT"


@contextmanager
def collector(*words: str) -> Iterator[str]:
    """Run a collector in a process of its own; yield its address."""
    command = [sys.executable, "-m", "bench.collector", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set these variables for the block."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]


def played(command: str, questions: int, url: str | None, *words: str) -> Run:
    """Play eight rollouts of each question, traced to `url` if there is one."""
    with endpoint(size=BYTES, right=RIGHT) as model, folder() as here:
        write_tasks(here / "tasks.jsonl", questions)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        work = {"verify": "math", "concurrency": CONCURRENCY, "pass_k": K}
        practice = {
            "epochs": 1,
            "batch_size": max(questions // 2, 1),
            "grpo_n": K,
            "rollout_concurrency": CONCURRENCY,
        }
        data = {"practice_dataset_name": "tasks"}
        sections: dict[str, Mapping[str, object]] = {"evaluation": work}
        if command == "practice":
            sections |= {"practice": practice, "data": data}
        write_config(here / "c.yaml", model, **sections)
        with variables({VARIABLE: url} if url else {}):
            return run(here, command, "--config", "c.yaml", *words)


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Compare CPU and wall of runs with and without traces."""
    questions = 4 if tiny else 500
    found = list[Row]()
    with collector() as url:
        for command in ("eval",) if tiny else ("eval", "practice"):
            least = [played(command, 2, to).cpu_s for to in (None, url)]
            pairs = list[tuple[Run, Run, Run]]()
            for _ in range(runs):
                plain = played(command, questions, None)
                traced = played(command, questions, url)
                some = played(command, questions, url, "--trace-sample", "0.1")
                pairs.append((plain, traced, some))
            taken = urlopen(url).read().decode().split()
            plain_ms = [1000 * (p.cpu_s - least[0]) / (questions * K) for p, _, _ in pairs]
            note = {"requests, bytes taken until now": " ".join(taken)}
            found.append(Row(f"{command}: CPU ms/rollout without traces", "", plain_ms))
            for name, n, most in (("all", 1, 1.10), ("one group in ten", 2, 1.10)):
                ratios = [
                    (p[n].cpu_s - least[1]) / max(p[0].cpu_s - least[0], 0.001) for p in pairs
                ]
                title = f"{command}, {name} traced: CPU of a rollout, ratio"
                found.append(Row(title, "≤ 1.10", ratios, at_most(most), note))
            found.append(
                Row(f"{command}: CPU s of the start that traces add", "", [least[1] - least[0]])
            )
    with collector("--hangs") as hanging, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens there
        bad = {"hanging": hanging, "dead": f"http://127.0.0.1:{closed.getsockname()[1]}"}
        for name, url in bad.items():
            added = list[float]()
            for _ in range(runs):
                plain, held = played("eval", 4, None), played("eval", 4, url)
                added.append(held.wall_s - plain.wall_s)
            found.append(Row(f"{name} collector: wall added, s", "≤ 2", added, at_most(2)))
    return found
