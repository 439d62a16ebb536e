"""A dataset of 1,000,000 questions: time and memory of an upload, and of commands that need few.

The floors are measured in the same run: a plain insert of the same lines into SQLite, and the same
command on three questions. A comparison with them means the same on a busy machine.
"""

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.harness import Row, at_most, environment, folder, write_tasks

FULL, TINY = 1_000_000, 2_000
FEW = {
    "data show": ("data", "show", "tasks"),
    "data list": ("data", "list"),
    "eval --limit 3": (
        *("eval", "--dataset", "tasks", "--verify", "math", "--model", "sim"),
        *("--limit", "3", "--dry-run"),
    ),
}
"""Commands that need few of the rows."""
WHOLE = {
    "data split": ("data", "split", "tasks"),
    "data sample": ("data", "sample", "tasks", "-n", "1000", "--name", "some"),
}
"""Commands that read every row."""
UPLOADS = {
    "upload": (),
    "the same upload": (),
    "append --dedup": ("--append", "--dedup"),
}


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure uploads against a plain insert, and other commands against the bare start."""
    found = dict[str, list[float]]()
    for _ in range(min(runs, 2)):
        with folder() as here:
            for name, value in _once(here, TINY if tiny else FULL).items():
                found.setdefault(name, []).append(value)
    return [
        Row(f"many questions: {name}", *_target(name, values)) for name, values in found.items()
    ]


def _target(name: str, values: list[float]) -> tuple[str, list[float], Callable[[float], bool]]:
    usual = 250 if name.endswith("MB") else 1 if name.endswith("of 3") else 40
    # A split holds its families in dictionaries.
    most = 400 if name == "data split, peak MB" else usual
    return f"≤ {most}", values, at_most(most)


def _once(here: Path, n: int) -> dict[str, float]:
    write_tasks(here / "tasks.jsonl", n)
    floor, found = _plain_insert(here), dict[str, float]()
    for name, more in UPLOADS.items():
        seconds, peak = _took(here, "data", "upload", "tasks.jsonl", "--name", "tasks", *more)
        found[f"{name}, times a plain insert"] = seconds / floor
        found[f"{name}, peak MB"] = peak
    small = here / "small"
    small.mkdir()
    write_tasks(small / "tasks.jsonl", 3)
    _took(small, "data", "upload", "tasks.jsonl", "--name", "tasks")
    for name, words in FEW.items():
        seconds, peak = _took(here, *words)
        found[f"{name}, s more than of 3"] = seconds - _took(small, *words)[0]
        found[f"{name}, peak MB"] = peak
    for name, words in WHOLE.items():
        found[f"{name}, peak MB"] = _took(here, *words)[1]
    return found


def _plain_insert(here: Path) -> float:
    """Return the seconds that reading the lines and inserting them takes at least."""
    begun = time.monotonic()
    with closing(sqlite3.connect(here / "floor.db")) as db:
        db.execute("CREATE TABLE rows (position INTEGER PRIMARY KEY, question TEXT, answer TEXT)")
        with (here / "tasks.jsonl").open(encoding="utf-8") as file:
            lines = map(json.loads, file)
            db.executemany("INSERT INTO rows (question, answer) VALUES (:question, :answer)", lines)
        db.commit()
    return time.monotonic() - begun


_PROBE = """
import resource, runpy, sys
sys.argv = ["grpo-practice", *sys.argv[1:]]
try:
    runpy.run_module("grpo_practice", run_name="__main__")
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)
"""


def _took(here: Path, *words: str) -> tuple[float, float]:
    """Return the seconds and the peak memory of a command, which has to end well."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *words],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} exited {done.returncode}: {done.stderr[-2000:]}")
    return time.monotonic() - begun, float(done.stderr.rpartition("peak ")[2])
