"""A long evaluation against an endpoint on a bad day: is every rollout accounted for?

    python -m tests.endurance.soak [--rollouts 20000] [--concurrency 64] [--seed 0]

One answer in ten is a fault: 429 with and without a header, 5xx, cut and reset bodies, broken JSON,
empty answers, requests that hang. The command and the server are processes of their own. Prints
what was counted and exits 1 when something does not add up.
"""

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_practice.sim.questions import questions
from tests.contract.endpoint.server import FaultProcess

K = 8
"""Rollouts of each question."""
EVERY_S = 0.25
"""How often the command's memory and files are looked at."""
GROWTH = 1.25
"""The most memory at the end, as a multiple of that at the beginning."""
SETTLED = 5_000
"""Rollouts from which the memory is judged: fewer are over before it has settled."""
GOOD = ("ok", "empty")
"""Answers that the program takes: what the server sent of these was to be paid for."""


@dataclass
class Watched:
    """What the command's process held, over time."""

    rss_mb: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def look(self, pid: int) -> None:
        """Take a sample; none when the process has just ended."""
        try:
            status = Path(f"/proc/{pid}/status").read_text("utf-8")
            files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - the count is all
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return
        found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
        if found:
            self.rss_mb.append(int(found[0]) / 1024)
            self.files.append(files)


def tenth(values: list[Any], *, last: bool) -> float:
    """The median of the first or the last tenth."""
    n = max(1, len(values) // 10)
    return float(statistics.median(values[-n:] if last else values[:n]))


@dataclass
class Soak:
    """One run of it: what was planned, and what was found afterwards."""

    planned: int
    exit: int
    seconds: float
    document: dict[str, Any]
    watched: Watched
    stats: dict[str, Any]
    asked: list[dict[str, Any]]
    folder: Path

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        db = sqlite3.connect(self.folder / "grpo-practice.db")
        try:
            return db.execute(sql).fetchall()
        finally:
            db.close()

    def problems(self) -> list[str]:
        """What does not add up."""
        checks = [*self._rollouts(), *self._calls(), *self._process()]
        return [what for what, holds in checks if not holds]

    def _rollouts(self) -> list[tuple[str, bool]]:
        ((rows,),) = self.query("SELECT count(*) FROM rollouts")
        per_step = self.query("SELECT step, slot, count(*) FROM rollouts GROUP BY 1, 2")
        unscored = self.query(
            """SELECT count(*) FROM rollouts LEFT JOIN verdicts USING (rollout_id)
                WHERE (outcome = 'error') = (reward IS NOT NULL)"""
        )
        told = self.document.get("rollouts", {})
        outcomes = sum(told.get("outcomes", {}).values())
        return [
            (f"{rows} rows for {self.planned} rollouts", rows == self.planned),
            ("some questions have not 8 rollouts", {n for *_, n in per_step} == {K}),
            ("rollouts without a verdict, or errors with one", unscored == [(0,)]),
            (f"the outcomes told add up to {outcomes}", outcomes == self.planned),
            ("the report does not say what was planned", told.get("planned") == self.planned),
        ]

    def _calls(self) -> list[tuple[str, bool]]:
        stored = Counter(h for (h,) in self.query("SELECT lower(hex(request_hash)) FROM calls"))
        sent = {a["hash"] for a in self.asked if a["said"] in GOOD and a["finished"]}
        lost, extra = sent - stored.keys(), stored.keys() - sent
        tries, asked = self._tries(), self.stats["requests"]
        return [
            (f"{len(lost)} answers that were sent are not stored", not lost),
            (f"{len(extra)} calls are stored that nobody answered", not extra),
            ("some calls are stored twice", set(stored.values()) == {1}),
            (f"only {tries} tries are on record for {asked} requests", tries >= asked),
        ]

    def _tries(self) -> int:
        ((of_calls, of_failures),) = self.query(
            """SELECT (SELECT total(tries) FROM calls), (SELECT total(tries) FROM failures)"""
        )
        return int(of_calls + of_failures)

    def _late(self) -> int:
        """Answers that came when the program had given them up, and that it asked for again."""
        sent = Counter(a["hash"] for a in self.asked if a["said"] in GOOD and a["finished"])
        return sent.total() - len(sent)

    def _process(self) -> list[tuple[str, bool]]:
        rss, files = self.watched.rss_mb, self.watched.files
        before, after = tenth(rss, last=False), tenth(rss, last=True)
        opened = tenth(files, last=True) - tenth(files, last=False)
        return [
            (f"exit code {self.exit}", self.exit == 0),
            (
                f"memory grew from {before:.0f} to {after:.0f} MB",
                after <= GROWTH * before or self.planned < SETTLED,
            ),
            (f"{opened:.0f} more files are open at the end", opened <= 10),
        ]

    def report(self) -> str:
        """The numbers, for people."""
        rss, files = self.watched.rss_mb, self.watched.files
        failures = self.query("SELECT kind, http_status, count(*) FROM failures GROUP BY 1, 2")
        requests = self.stats["requests"]
        return "\n".join(
            [
                f"rollouts   {self.planned} planned; the report says {self.document['rollouts']}",
                f"requests   {requests} made, {requests / self.planned:.3f} of the ideal;"
                f" at most {self.stats['most_at_once']} at once; {self._late()} answered too late",
                f"answers    {self.stats['by_answer']}",
                f"tries      {dict(self.query('SELECT tries, count(*) FROM calls GROUP BY 1'))}",
                f"failures   {failures}",
                f"memory     {tenth(rss, last=False):.1f} MB in the first tenth,"
                f" {tenth(rss, last=True):.1f} MB in the last, at most {max(rss):.1f} MB",
                f"files      {tenth(files, last=False):.0f} open in the first tenth,"
                f" {tenth(files, last=True):.0f} in the last, at most {max(files)}",
                f"time       {self.seconds:.1f} s, {self.planned / self.seconds:.0f} rollouts/s",
                f"exit       {self.exit}",
            ]
        )


def soak(
    folder: Path, *, rollouts: int, concurrency: int, seed: int, timeout_s: float = 2.0
) -> Soak:
    """Run the evaluation in that folder, to its end; a request that hangs is given up early."""
    samples = questions(rollouts // K, seed)
    rows = [json.dumps({"question": s.question, "answer": s.answer}) for s in samples]
    (folder / "many.jsonl").write_text("\n".join(rows))
    out, err = folder / "out.json", folder / "err.txt"
    with FaultProcess("mixed", seed=seed, latency_s=0.01) as server, out.open("w") as stdout:
        start = time.monotonic()
        with err.open("w") as stderr:
            command = subprocess.Popen(
                _command(server.url, concurrency, timeout_s),
                cwd=folder,
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                env={k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH")}
                | {"XDG_CONFIG_HOME": str(folder / "user")},
            )
        watched = Watched()
        with command:
            while command.poll() is None:
                if watched.rss_mb or server.stats()["finished"].get("ok"):
                    watched.look(command.pid)
                time.sleep(EVERY_S)
        seconds = time.monotonic() - start
        document = json.loads(out.read_text("utf-8"))
        if command.returncode:
            raise SystemExit(f"exit {command.returncode}: {document}\n{err.read_text('utf-8')}")
        return Soak(
            planned=len(samples) * K,
            exit=command.returncode,
            seconds=seconds,
            document=document,
            watched=watched,
            stats=server.stats(),
            asked=server.rows(),
            folder=folder,
        )


def _command(url: str, concurrency: int, timeout_s: float) -> list[str]:
    words = ["--model", "m-1", "--base-url", url, "--dataset", "many.jsonl", "--verify", "math"]
    words += ["-k", str(K), "--concurrency", str(concurrency), "--json"]
    words += ["--set", f"agent.model.model_settings.extra_args.timeout={timeout_s}"]
    return [sys.executable, "-m", "grpo_practice", "eval", *words]


def main() -> int:
    """Run it as told on the command line; 1 when something does not add up."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        done = soak(
            Path(folder), rollouts=told.rollouts, concurrency=told.concurrency, seed=told.seed
        )
        problems = done.problems()
        print(done.report())  # noqa: T201
    for problem in problems:
        print(f"PROBLEM    {problem}")  # noqa: T201
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
