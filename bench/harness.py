"""Parts of every benchmark: an endpoint, a folder, a command under the probe, a row."""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"


@dataclass(frozen=True, slots=True)
class Run:
    """Resources that one command used, and its output. See `probe` for the figures."""

    figures: Mapping[str, Any]
    document: Mapping[str, Any]

    def __getattr__(self, name: str) -> float:
        """Return a figure by its name."""
        return float(self.figures[name])


@dataclass(slots=True)
class Row:
    """One line of the table: what was to be reached, and what each run came to."""

    name: str
    target: str
    values: list[float]
    reached: Callable[[float], bool] | None = None
    """Target of the median; None for a figure that is only told."""
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """Values of all runs."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """`yes`, `no`, or nothing where there is no target."""
        return "" if self.reached is None else "yes" if self.reached(self.median) else "no"

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON."""
        told = asdict(self) | {"median": self.median, "verdict": self.verdict}
        del told["reached"]
        return told


def at_least(least: float) -> Callable[[float], bool]:
    """Set a target that is reached by that much or more."""
    return lambda value: value >= least


def at_most(most: float) -> Callable[[float], bool]:
    """Set a target that is reached by that much or less."""
    return lambda value: value <= most


def share(name: str, hits: int, seeds: int, target: tuple[float, float]) -> Row:
    """Return a row for a share in percent, reached where its Clopper-Pearson interval is."""
    from scipy import special

    low = 100 * float(special.betaincinv(hits, seeds - hits + 1, 0.025)) if hits else 0.0
    high = 100 * float(special.betaincinv(hits + 1, seeds - hits, 0.975)) if hits < seeds else 100.0
    least, most = target
    reached: Callable[[float], bool] = lambda _: least <= low and high <= most  # noqa: E731
    bounds = f"≤ {most:g} %" if not least else f"{least:.4g} to {most:.4g} %"
    row = Row(name, bounds, [100 * hits / seeds], reached)
    row.notes["seeds, interval"] = f"{seeds:,}, {low:.2f} to {high:.2f} %"
    return row


def stalls(name: str, runs: Sequence[Run]) -> list[Row]:
    """Summarise how long the event loop stood still in these runs."""
    p999 = [run.stall_p999_ms for run in runs]
    return [
        Row(f"{name}: stall p99.9, ms", "≤ 50", p999, at_most(50)),
        Row(f"{name}: longest stall, ms", "", [run.stall_max_ms for run in runs]),
    ]


@contextmanager
def endpoint(**options: object) -> Iterator[str]:
    """Run a benchmark endpoint in a process of its own; yield its base URL."""
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "bench.endpoint", *given]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


@contextmanager
def folder() -> Iterator[Path]:
    """Yield an empty folder; remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="grpo-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def write_tasks(path: Path, n: int, pairs: Sequence[tuple[str, str, str]] | None = None) -> None:
    """Make a dataset of `n` questions, each carrying its answer for the endpoint.

    `pairs`: (gold, a right answer, a wrong one), taken in turn; integers when there are none.
    """
    with path.open("w", encoding="utf-8") as file:
        for i in range(n):
            gold, right, wrong = pairs[i % len(pairs)] if pairs else (str(i), str(i), str(i + 1))
            question = f"Question {i}: find x. #answer {right}# #wrong {wrong}#"
            file.write(json.dumps({"question": question, "answer": gold}) + "\n")


def write_config(path: Path, url: str, **sections: Mapping[str, Any]) -> None:
    """Write a config for the endpoint at `url`, with `practice`, `evaluation`, … merged in."""
    model = {"model": "bench", "base_url": url, "api_key": "EMPTY"}
    instructions = "Solve the task. Put the answer in \\boxed{}."
    agent = {
        "model": {"model_provider": model},
        "agent": {"name": "bench", "instructions": instructions},
    }
    evaluation: dict[str, Any] = {
        "agent": agent,
        "verify": "math",
        "data": {"dataset": "tasks"},
    }
    evaluation |= sections.pop("evaluation", {})
    whole = {"exp_id": "bench", "evaluation": evaluation, **sections}
    path.write_text(yaml.safe_dump(whole), "utf-8")


def run(cwd: Path, *words: str, timeout_s: float = 3600) -> Run:
    """Run the command under the probe, in that folder.

    Raises:
        RuntimeError: It failed; with what it said.
    """
    file = cwd / "probe.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench.probe", str(file), *words, "--json"],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} exited {done.returncode}: {done.stderr[-2000:]}")
    return Run(json.loads(file.read_text("utf-8")), json.loads(done.stdout))


def kill_after(
    cwd: Path, url: str, requests: int, *words: str, timeout_s: float = 3600
) -> tuple[float, float]:
    """Kill the command after so many requests; return when it began, and when its first came.

    Seconds since 1970.

    Raises:
        RuntimeError: It ended before.
    """
    before, begun = _asked(url)[0], time.time()
    command = [sys.executable, "-m", "grpo_practice", *words]
    with subprocess.Popen(
        command, cwd=cwd, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while time.time() - begun < timeout_s:
                ended = process.poll() is not None
                asked, first_s = _asked(url)
                if asked >= before + requests:
                    return begun, first_s
                if ended:
                    break
                time.sleep(0.02)
            raise RuntimeError(f"{' '.join(words)} ended without {requests} requests")
        finally:
            process.kill()


def seconds_to_first_request(cwd: Path, url: str, *words: str) -> float:
    """Measure from the start of the command's process to its first request; then kill it."""
    begun, first = kill_after(cwd, url, 1, *words)
    return first - begun


def _asked(url: str) -> tuple[int, float]:
    """Return how many requests came, and when the first one after a pause did."""
    with urlopen(url.removesuffix("/v1") + "/stats") as reply:
        told = json.load(reply)
    return int(told["asked"]), float(told["burst_at"])


def cli(cwd: Path, *words: str) -> str:
    """Return stdout of a command."""
    command = [sys.executable, "-m", "grpo_practice", *words]
    done = subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} exited {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def environment() -> dict[str, str]:
    """Return the environment of a benchmark's commands."""
    return os.environ | {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        "COLUMNS": "100",
        "PYTHONDONTWRITEBYTECODE": "",  # an installed program has its bytecode
        # Whom a person trusts is not changed by a measurement.
        "XDG_CONFIG_HOME": str(Path(tempfile.gettempdir()) / "grpo-practice-bench-user"),
    }


def machine() -> str:
    """Describe the machine."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def save(name: str, rows: Sequence[Row]) -> None:
    """Write the rows of one benchmark as JSON, for `table`."""
    RESULTS.mkdir(exist_ok=True)
    told = {"machine": machine(), "rows": [row.as_dict() for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=1), "utf-8")
