"""A long evaluation against an endpoint on a bad day: is every rollout accounted for?

    python -m tests.endurance.soak [--rollouts 100000] [--concurrency 64] [--seed 0]

One answer in five is a fault of one of 18 kinds (`faults` of `tests/contract/endpoint/scripts.py`).
The command and the server are processes of their own. Prints what was counted and exits 1 when
something does not add up. Against the endpoint's own log,

    an answer is lost       if all of a whole reply was sent in time, and it is not stored;
    a request is paid twice if it was sent again after that;
    an answer is mixed up   if it is stored for a request, or a rollout, that is not its own.

A reply is in time that was sent within half of the deadline, as measured by the endpoint.
"""

import argparse
import hashlib
import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from grpo_practice.llm.sim import respond
from grpo_practice.sim.questions import questions
from tests.contract.endpoint.actions import Asked, Message, Script, changed, ok
from tests.contract.endpoint.scripts import ANSWERED, faults
from tests.contract.endpoint.server import FaultProcess

SHARE = 0.2
"""Of requests that meet a fault."""
K = 8
"""Rollouts of each question."""
EVERY_S = 0.25
"""How often the command's memory and files are looked at."""
GROWTH = 1.25
"""The most memory at the end, as a multiple of that at the beginning."""
SETTLED = 5_000
"""Rollouts from which the memory is judged: fewer are over before it has settled."""
DEADLINE_S = 4.0
"""Deadline of a request. Each one that the endpoint lets hang takes as long."""
Row = dict[str, Any]
"""A request in the endpoint's log."""


def mixed(seed: int) -> Script:
    """Return a script of the simulated endpoint with faults, in an order given by the seed.

    Each kind is as likely as any other. A message names the request that it answers.
    """

    def message(asked: Asked, _: Message) -> Message:
        said = respond("POST", asked.path, asked.content)[1]["choices"][0]["message"]
        return {**said, "answers": [asked.n, asked.request_hash]}

    draw, good = Random(seed), changed(ok(""), message)
    kinds = list(faults(good).values())
    return lambda _: draw.choice(draw.choice(kinds)) if draw.random() < SHARE else good


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
    asked: list[Row]
    folder: Path
    deadline_s: float

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
        told = self.document.get("score", {})
        outcomes = sum(self.document.get("outcomes", {}).values())
        return [
            (f"{rows} rows for {self.planned} rollouts", rows == self.planned),
            ("some questions have not 8 rollouts", {n for *_, n in per_step} == {K}),
            ("rollouts without a verdict, or errors with one", unscored == [(0,)]),
            (f"the outcomes told add up to {outcomes}", outcomes == self.planned),
            ("the report does not say what was planned", told.get("planned") == self.planned),
        ]

    def _calls(self) -> list[tuple[str, bool]]:
        stored = Counter(h for (h,) in self.query("SELECT lower(hex(request_hash)) FROM calls"))
        unanswered = {a["hash"] for a in self.asked} - stored.keys()
        ((errors,),) = self.query("SELECT count(*) FROM rollouts WHERE outcome = 'error'")
        ((failures,),) = self.query("SELECT count(*) FROM failures")
        lost, twice, mixed = self.lost(), self.paid_twice(), self.mixed_up()
        tries, asked = self._tries(), self.stats["requests"]
        return [
            (f"{len(lost)} answers are lost: {lost[:3]}", not lost),
            (f"{len(twice)} requests were paid twice: {twice[:3]}", not twice),
            (f"{len(mixed)} answers are mixed up: {mixed[:3]}", not mixed),
            ("some calls are stored twice", set(stored.values()) == {1}),
            (
                f"{errors} errors and {failures} failures for {len(unanswered)} requests without"
                " an answer",
                errors == failures == len(unanswered),
            ),
            (f"only {tries} tries are on record for {asked} requests", tries >= asked),
        ]

    def answers(self) -> list[Row]:
        """Return the requests of which the whole reply was sent in time."""
        return [a for a in self._whole() if a["took_s"] <= self.deadline_s / 2]

    def _whole(self) -> list[Row]:
        return [a for a in self.asked if a["said"] in ANSWERED and a["finished"]]

    def lost(self) -> list[Row]:
        """Return the answers that are not stored."""
        stored = {n for _, (n, _), *_ in self._stored()}
        return [a for a in self.answers() if a["n"] not in stored]

    def paid_twice(self) -> list[Row]:
        """Return the requests that had been answered before."""
        answered = dict[str, int]()
        for a in self.answers():
            answered.setdefault(a["hash"], a["n"])
        return [a for a in self.asked if a["n"] > answered.get(a["hash"], a["n"])]

    def mixed_up(self) -> list[tuple[Any, ...]]:
        """Return the rollouts and calls whose answer is that to another request."""
        asked = {a["n"]: a["hash"] for a in self._whole()}
        wrong, contents = list[tuple[Any, ...]](), dict[tuple[int, ...], tuple[str, str]]()
        for own, (n, answers), place, messages, content in self._stored():
            if not own == answers == asked.get(n):
                wrong.append(("call", own, n, answers))
            contents[place] = messages, hashlib.sha256(content.encode()).hexdigest()
        for *where, outcome, question, answer, response, reward in self.query(
            """SELECT branch_id, step, slot, attempt, outcome, question, answer, response, reward
                 FROM rollouts JOIN samples USING (sample_id) LEFT JOIN verdicts USING (rollout_id)
                 JOIN rollout_bodies USING (rollout_id) ORDER BY 1, 2, 3, 4"""
        ):
            if outcome == "error":
                continue
            place = (*where,)
            messages, content = contents.get(place, ("", ""))
            boxed = re.findall(r"\\boxed{(.*)}", response)
            if not (
                question in messages
                and content == hashlib.sha256(response.encode()).hexdigest()
                and reward == float(boxed == [answer])
            ):
                wrong.append(("rollout", *place, reward, boxed, answer))
        return wrong

    def _stored(self) -> Iterator[tuple[str, tuple[int, str], tuple[int, ...], str, str]]:
        """Yield each call's hash, what its answer answers, its place, messages and content."""
        db = sqlite3.connect(self.folder / "grpo-practice.db")
        try:
            for own, request, reply, codec, *place in db.execute(
                """SELECT lower(hex(request_hash)), request, reply, codec,
                          branch_id, step, slot, attempt
                     FROM calls JOIN call_bodies USING (call_id) ORDER BY call_id"""
            ):
                asked, said = (
                    json.loads(zlib.decompress(raw) if codec else raw) for raw in (request, reply)
                )
                messages = " ".join(message["content"] for message in asked)
                n, answers = said.get("answers", (0, ""))
                yield own, (n, answers), (*place,), messages, said["content"]
        finally:
            db.close()

    def _tries(self) -> int:
        ((of_calls, of_failures),) = self.query(
            """SELECT (SELECT total(tries) FROM calls), (SELECT total(tries) FROM failures)"""
        )
        return int(of_calls + of_failures)

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
        size = (self.folder / "grpo-practice.db").stat().st_size
        return "\n".join(
            [
                f"rollouts   {self.planned} planned; the report says {self.document['outcomes']}",
                f"requests   {requests} made, {requests / self.planned:.3f} of the ideal;"
                f" at most {self.stats['most_at_once']} at once",
                f"replies    {len(self.answers())} whole and in time,"
                f" {len(self._whole()) - len(self.answers())} whole and too late",
                f"lost       {len(self.lost())}; paid twice {len(self.paid_twice())};"
                f" mixed up {len(self.mixed_up())}",
                f"answers    {self.stats['by_answer']}",
                f"tries      {dict(self.query('SELECT tries, count(*) FROM calls GROUP BY 1'))}",
                f"failures   {failures}",
                f"memory     {tenth(rss, last=False):.1f} MB in the first tenth,"
                f" {tenth(rss, last=True):.1f} MB in the last, at most {max(rss):.1f} MB",
                f"database   {size / 2**20:.0f} MiB, {size / self.planned:.0f} bytes a rollout",
                f"files      {tenth(files, last=False):.0f} open in the first tenth,"
                f" {tenth(files, last=True):.0f} in the last, at most {max(files)}",
                f"time       {self.seconds:.1f} s, {self.planned / self.seconds:.0f} rollouts/s",
                f"exit       {self.exit}",
            ]
        )


def soak(
    folder: Path, *, rollouts: int, concurrency: int, seed: int, deadline_s: float = DEADLINE_S
) -> Soak:
    """Run the evaluation in that folder, to its end; a request that hangs is given up early."""
    samples = questions(rollouts // K, seed)
    rows = [json.dumps({"question": s.question, "answer": s.answer}) for s in samples]
    (folder / "many.jsonl").write_text("\n".join(rows))
    out, err = folder / "out.json", folder / "err.txt"
    with (
        FaultProcess("tests.endurance.soak:mixed", seed=seed, latency_s=0.01) as server,
        out.open("w") as stdout,
    ):
        start = time.monotonic()
        with err.open("w") as stderr:
            command = subprocess.Popen(
                _command(server.url, concurrency, deadline_s),
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
            deadline_s=deadline_s,
        )


def _command(url: str, concurrency: int, deadline_s: float) -> list[str]:
    words = ["--model", "m-1", "--base-url", url, "--dataset", "many.jsonl", "--verify", "math"]
    words += ["-k", str(K), "--concurrency", str(concurrency), "--json"]
    words += ["--set", f"agent.model.model_settings.extra_args.timeout={deadline_s}"]
    return [sys.executable, "-m", "grpo_practice", "eval", *words]


def main() -> int:
    """Run it as told on the command line; 1 when something does not add up."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=100_000)
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
