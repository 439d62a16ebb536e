"""How long a command takes until it does something, on top of what the interpreter itself takes.

Measured in turn with an application of ten lines, so that both meet the same machine. Target:
`--help` takes at most twice as long as that application's; a run is forecast within a second.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.harness import (
    Row,
    at_most,
    cli,
    endpoint,
    environment,
    folder,
    seconds_to_first_request,
    write_config,
    write_tasks,
)

QUESTIONS = 100
BARE = '''\
import typer

app = typer.Typer({options})


@app.command()
def hello(name: str = "world") -> None:
    """Say hello."""


app()
'''


class Took(NamedTuple):
    """Figures of one process."""

    cpu_s: float
    wall_s: float


def took(here: Path, *command: str) -> Took:
    """Run the command, which has to end well."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *command], cwd=here, env=environment(), capture_output=True, check=True
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def in_turn(runs: int, here: Path, commands: Mapping[str, Sequence[str]]) -> dict[str, list[Took]]:
    """Run each command that often, one after the other; the first time of each is not counted."""
    found: dict[str, list[Took]] = {name: [] for name in commands}
    for n in range(runs + 1):
        for name, command in commands.items():
            one = took(here, *command)
            if n:
                found[name].append(one)
    return found


def project(here: Path) -> None:
    """Make a folder with a dataset, a configuration, and a run that has begun."""
    write_tasks(here / "tasks.jsonl", QUESTIONS)
    cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
    with endpoint() as url:
        work = {"epochs": 3, "batch_size": 50, "grpo_n": 5, "rollout_concurrency": 16}
        data = {"practice_dataset_name": "tasks"}
        write_config(here / "c.yaml", url, data=data, practice=work)
        cli(here, "practice", "--config", "c.yaml", "--pilot", "5")


def first_request(runs: int) -> list[float]:
    """Measure from the start of an evaluation to its first request, over plain HTTP."""
    with folder() as here, endpoint(latency=60) as url:
        write_tasks(here / "tasks.jsonl", QUESTIONS)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        write_config(here / "c.yaml", url)
        words = ("eval", "--config", "c.yaml")
        return [seconds_to_first_request(here, url, *words) for _ in range(runs)]


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure `--help` beside a bare application's, a forecast, an evaluation's first request."""
    runs = 1 if tiny else 4 * runs
    ours = ("-m", "grpo_practice")
    with folder() as here:
        (here / "bare.py").write_text(BARE.format(options=""), "utf-8")
        (here / "plain.py").write_text(BARE.format(options="rich_markup_mode=None"), "utf-8")
        project(here)
        done = in_turn(
            runs,
            here,
            {
                "bare": ("bare.py", "--help"),
                "plain": ("plain.py", "--help"),
                "help": (*ours, "--help"),
                "forecast": (*ours, "practice", "--config", "c.yaml", "--dry-run"),
            },
        )
    found = list[Row]()
    for what, of in (("CPU", 0), ("wall", 1)):
        for name, known in (("bare", "a bare Typer app"), ("plain", "one that draws nothing")):
            pairs = zip(done["help"], done[name], strict=True)
            ratio = [mine[of] / theirs[of] for mine, theirs in pairs]
            goal = ("≤ 2", at_most(2)) if name == "bare" else ("", None)
            found.append(Row(f"`--help` / {known}, {what}", goal[0], ratio, goal[1]))
    wall = [one.wall_s for one in done["forecast"]]
    found.append(Row("`practice --dry-run`, s", "≤ 1", wall, at_most(1)))
    cpu = [one.cpu_s for one in done["forecast"]]
    found.append(Row("`practice --dry-run`, CPU s", "", cpu))
    found.append(Row("`eval`: s to the first request", "", first_request(runs)))
    return found
