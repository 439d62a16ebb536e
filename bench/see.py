"""What people see, and how fast: the report, the pages of a million rollouts, and who is held up.

The store is that of `big_store`, with answers of 2 KB. A page is read cold after the kernel was
told to forget the files, where it may be, and warm as the best of three.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.big_store import DATABASE, Size, build
from bench.harness import ROOT, Row, at_most, cli, endpoint, folder, write_config, write_tasks

BYTES = 2048
REPORTED, FULL, TINY = Size(500, 8, 50, 8, 2), Size(12_500, 64, 50, 8, 500), Size(64, 4, 4, 2, 4)
EVAL = "run=bench%2Feval"
PAGES = {
    "runs": "/",
    "run": "/run?run=bench",
    "evaluation": f"/run?{EVAL}",
    "step": "/step?run=bench&step=1",
    "group": "/group?run=bench&step=1&slot=1",
    "rollout": "/rollout?run=bench&step=1&slot=1&attempt=0",
    "rollouts": f"/rollouts?{EVAL}",
    "failed rollouts": f"/rollouts?{EVAL}&only=failed",
    "questions": f"/questions?{EVAL}",
    "questions of a practice": "/questions?run=bench",
    "experiences": "/experiences?run=bench",
    "failures": f"/failures?{EVAL}",
    "search in a run": f"/search?{EVAL}&q=answer",
}
SCANS = {
    "rollouts below 1": f"/rollouts?{EVAL}&only=wrong",
    "rollouts below 1, by reward": f"/rollouts?{EVAL}&only=wrong&sort=reward",
    "rollouts by reward": f"/rollouts?{EVAL}&sort=reward",
    "rollouts by tokens": f"/rollouts?{EVAL}&sort=tokens",
    "rollouts by time": f"/rollouts?{EVAL}&sort=time",
    "search of what is nowhere": "/search?q=zyzzyva",
}
"""Pages that read all rollouts of a run, or all answers: seconds are accepted."""
TARGET_S, SCAN_S = 0.2, 10


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure report, pages, and a practice while its pages are read."""
    with endpoint(size=BYTES) as url:
        found = _report(url, runs, TINY if tiny else REPORTED)
        with folder() as here:
            build(here, url, TINY if tiny else FULL)
            found += _pages(here / DATABASE, "page", PAGES, TARGET_S)
            found += _pages(here / DATABASE, "page that reads everything", SCANS, SCAN_S)
        return [*found, _held_up(url, runs, 4 if tiny else 40)]


def _report(url: str, runs: int, size: Size) -> list[Row]:
    with folder() as here:
        n = build(here, url, size)
        taken = []
        for _ in range(runs):
            start = time.monotonic()
            cli(here, "report", "bench", "-o", "r.html", "--force")
            taken.append(time.monotonic() - start)
        megabytes = (here / "r.html").stat().st_size / 1e6
    return [
        Row(f"see: report of {n:,} rollouts, s", "≤ 5", taken, at_most(5)),
        Row("see: its size, MB", "≤ 5", [megabytes], at_most(5)),
    ]


def _pages(database: Path, kind: str, paths: Mapping[str, str], target_s: float) -> list[Row]:
    cold, warm = dict[str, float](), dict[str, float]()
    with _viewer(database) as client:
        for name, path in paths.items():
            _forget(database)
            seconds = [_get(client, path) for _ in range(4)]
            cold[name], warm[name] = seconds[0], min(seconds[1:])
    return [
        Row(
            f"see: slowest {kind}, {how}, s",
            f"≤ {target_s}",
            [max(of.values())],
            at_most(target_s),
            {name: f"{of[name]:.3f}" for name in sorted(of, key=lambda n: -of[n])},
        )
        for how, of in (("cold", cold), ("warm", warm))
    ]


def _get(client: httpx.Client, path: str) -> float:
    start = time.monotonic()
    answer = client.get(path)
    taken = time.monotonic() - start
    assert answer.status_code == 200, f"{path}: {answer.status_code}"
    return taken


def _forget(database: Path) -> None:
    """Ask the kernel to drop the database from its cache, if it can be asked (Linux)."""
    advise: Callable[..., None] = getattr(os, "posix_fadvise", lambda *_: None)
    with database.open("rb") as file:
        advise(file.fileno(), 0, 0, getattr(os, "POSIX_FADV_DONTNEED", 0))


@contextmanager
def _viewer(database: Path) -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "grpo_practice", "view", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, "--db", str(database)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        url = json.loads(text)["url"]
        try:
            at = url.partition("?")[0].rstrip("/")
            with httpx.Client(base_url=at, timeout=60, follow_redirects=True) as client:
                client.get(url)
                yield client
        finally:
            process.terminate()


def _held_up(url: str, runs: int, epochs: int) -> Row:
    """Measure a practice while ten pages a second are read, beside one that nobody looks at."""
    shares = []
    for _ in range(runs):
        alone, looked_at = _practice_s(url, epochs, False), _practice_s(url, epochs, True)
        shares.append(looked_at / alone)
    return Row("see: practice while 10 pages/s are read, wall", "≤ 1.05", shares, at_most(1.05))


def _practice_s(url: str, epochs: int, looked_at: bool) -> float:
    with folder() as here:
        write_tasks(here / "a.jsonl", 20)
        cli(here, "data", "upload", "a.jsonl", "--name", "a")
        write_config(
            here / "c.yaml",
            url,
            evaluation={"verify": "exact"},
            practice={"epochs": epochs, "batch_size": 20, "grpo_n": 5, "do_eval": False},
            data={"practice_dataset_name": "a"},
        )
        cli(here, "practice", "--config", "c.yaml", "--pilot", "1")
        over = threading.Event()
        with _viewer(here / DATABASE) as client:
            reader = threading.Thread(target=_read, args=(client, over))
            if looked_at:
                reader.start()
            start = time.monotonic()
            cli(here, "practice", "--config", "c.yaml")
            taken = time.monotonic() - start
            over.set()
            if looked_at:
                reader.join()
        return taken


def _read(client: httpx.Client, over: threading.Event) -> None:
    paths = ["/run?run=bench", "/rollouts?run=bench", "/questions?run=bench", "/"]
    while not over.is_set():
        for path in paths:
            start = time.monotonic()
            client.get(path)
            over.wait(max(0.1 - (time.monotonic() - start), 0))
