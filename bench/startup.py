"""How long a command takes until it does something, on top of what the interpreter itself takes.

Measured in turn with an application of ten lines, so that both meet the same machine. Target:
`--help` takes at most twice as long as that application's; a run is forecast within a second.
What only reads is compared with the import of the libraries that it cannot do without.
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

LIBRARIES = "import typer, rich, yaml, httpx"
READERS: Mapping[str, tuple[float, Sequence[str]]] = {
    "runs list": (1.8, ("runs", "list")),
    "experiences list": (1.8, ("experiences", "list", "--run", "demo")),
    "runs show": (2.2, ("runs", "show", "demo/eval")),
    "practice --dry-run": (3.5, ("practice", "--config", "c.yaml", "--dry-run")),
}
"""Command → its CPU, at most, over that of an interpreter that imports `LIBRARIES`; its words."""
FIRST_S = 1.2


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


def project(here: Path) -> Path:
    """Make a folder with the demo's runs, a dataset, a configuration, and a run that has begun."""
    cli(here, "demo", "--keep", "demo")
    made = here / "demo"
    write_tasks(made / "tasks.jsonl", QUESTIONS)
    cli(made, "data", "upload", "tasks.jsonl", "--name", "tasks")
    with endpoint() as url:
        work = {"epochs": 3, "batch_size": 50, "grpo_n": 5, "rollout_concurrency": 16}
        data = {"practice_dataset_name": "tasks"}
        write_config(made / "c.yaml", url, data=data, practice=work)
        cli(made, "practice", "--config", "c.yaml", "--pilot", "5")
    return made


def first_request(runs: int, command: str) -> list[float]:
    """Measure from the start of a command to its first request, over plain HTTP."""
    found = list[float]()
    for _ in range(runs):
        with folder() as here, endpoint(latency=60) as url:
            write_tasks(here / "tasks.jsonl", QUESTIONS)
            cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
            write_config(here / "c.yaml", url, data={"practice_dataset_name": "tasks"})
            found.append(seconds_to_first_request(here, url, command, "--config", "c.yaml"))
    return found


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure `--help`, commands that only read, a forecast, and the first request of a run."""
    runs = 1 if tiny else 4 * runs
    ours = ("-m", "grpo_practice")
    with folder() as outer:
        here = project(outer)
        (here / "bare.py").write_text(BARE.format(options=""), "utf-8")
        (here / "plain.py").write_text(BARE.format(options="rich_markup_mode=None"), "utf-8")
        done = in_turn(
            runs,
            here,
            {
                "bare": ("bare.py", "--help"),
                "plain": ("plain.py", "--help"),
                "help": (*ours, "--help"),
                "libraries": ("-c", LIBRARIES),
                **{name: (*ours, *words) for name, (_, words) in READERS.items()},
            },
        )
    found = list[Row]()
    for what, of in (("CPU", 0), ("wall", 1)):
        for name, known in (("bare", "a bare Typer app"), ("plain", "one that draws nothing")):
            pairs = zip(done["help"], done[name], strict=True)
            ratio = [mine[of] / theirs[of] for mine, theirs in pairs]
            goal = ("≤ 2", at_most(2)) if name == "bare" else ("", None)
            found.append(Row(f"`--help` / {known}, {what}", goal[0], ratio, goal[1]))
    for name, (most, _) in READERS.items():
        pairs = zip(done[name], done["libraries"], strict=True)
        ratio = [mine.cpu_s / theirs.cpu_s for mine, theirs in pairs]
        found.append(Row(f"`{name}` / imported libraries, CPU", f"≤ {most}", ratio, at_most(most)))
    forecast = done["practice --dry-run"]
    found.append(Row("`practice --dry-run`, s", "≤ 1", [f.wall_s for f in forecast], at_most(1)))
    found.append(Row("`practice --dry-run`, CPU s", "", [f.cpu_s for f in forecast]))
    for command in ("eval", "practice"):
        first = first_request(runs, command)
        what = f"`{command}`: s to the first request"
        found.append(Row(what, f"≤ {FIRST_S}", first, at_most(FIRST_S)))
    return found
