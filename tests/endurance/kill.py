"""Commands that are killed wherever it hurts, and gone on with: is anything lost or different?

    python -m tests.endurance.kill [--case NAME] [--kills N] [--seed 0]

A practice run of three steps is killed with SIGKILL, the same command is given again, is killed
again, and so on until it comes to its end; then commands that compare, measure, approve and reuse
are killed likewise. The endpoint is a process of its own that answers the same to the same and
counts. Prints the cost of each kill, and exits 1 if anything came to other results than commands
that were left alone, or left processes or files behind.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import shlex
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from aiohttp import web
from typing_extensions import override

from grpo_practice.llm.sim import respond
from grpo_practice.sim import stage_of
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store
from grpo_practice.store.check import check
from tests.endurance import cases
from tests.endurance.cases import CASES, CONCURRENCY, PRACTISE, RESULTS, TIMES, Case, Visits
from tests.processes import HANG_S

LATENCY_S = 0.04
"""The time between two replies: they come one by one, so that each has time to be stored."""
MOST_UNWRITTEN = CONCURRENCY - 1
"""The most replies a kill may cost that had come: 280 ms of them, which spares a busy machine."""
ALL_ANSWERED = 2 * CONCURRENCY
"""The visit of the rollouts at which, were nothing committed, all who were sent are answered."""
ENDING_S = 30
"""For the processes and folders of a killed command to go; after that they stay for good."""
KEY = "5f" * 32
"""Secret of the fences of every run."""


async def serve() -> None:
    """Answer as the simulated endpoint does, and count by what was asked; `/forget` begins anew."""
    seen: Counter[str] = Counter()
    stages: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    turn = asyncio.Lock()

    async def reply(request: web.Request) -> web.Response:
        content = await request.read()
        body = json.loads(content)
        asked = json.dumps(body, sort_keys=True).encode()
        seen[hashlib.sha256(asked).hexdigest()] += 1
        stages[stage_of(body)] += 1
        async with turn:
            await asyncio.sleep(LATENCY_S)
        status, told = respond("POST", request.path, content)
        if request.transport is not None:  # whoever asked is still there
            answered["all"] += 1
        return web.json_response(told, status=status)

    async def stats(_: web.Request) -> web.Response:
        counts = {
            "received": seen.total(),
            "answered": answered.total(),
            "different": len(seen),
            "stages": dict(stages),
            "seen": seen,
        }
        return web.json_response(counts)

    async def forget(_: web.Request) -> web.Response:
        seen.clear()
        answered.clear()
        stages.clear()
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/stats", stats)
    app.router.add_get("/forget", forget)
    app.router.add_post("/v1/chat/completions", reply)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


class Endpoint:
    """The counting server, from outside."""

    def __init__(self, port: str) -> None:
        self.root = f"http://127.0.0.1:{port}"

    def get(self, what: str) -> dict[str, Any]:
        with urlopen(f"{self.root}/{what}", timeout=30) as reply:
            found: dict[str, Any] = json.load(reply)
            return found


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """The server, in a process of its own, for the block."""
    command = [sys.executable, "-m", "tests.endurance.kill", "--serve"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Endpoint(process.stdout.readline().strip())
        finally:
            process.kill()


@dataclass
class Run:
    """Commands in a folder of their own, which may begin as a copy of another."""

    folder: Path
    endpoint: Endpoint
    copied: Path | None = None

    def __post_init__(self) -> None:
        if self.copied is not None:
            shutil.copytree(self.copied, self.folder)
        else:
            self._make()
        self._stored = self._calls()
        self.endpoint.get("forget")

    def _make(self) -> None:
        (self.folder / "tmp").mkdir(parents=True)
        (self.folder / "c.yaml").write_text(cases.CONFIG, "utf-8")
        (self.folder / "check.py").write_text(cases.CHECK, "utf-8")
        told = "Call the tool `write` with line=a. Call the tool `read`."
        notes = [replace(s, question=f"{s.question} {told}") for s in questions(6, 2)]
        with Store(self.folder / "grpo-practice.db") as store:
            store.add_dataset("train", questions(18, 0), origin="sim", replace=False)
            store.add_dataset("held-out", questions(12, 1), origin="sim", replace=False)
            store.add_dataset("notes", notes, origin="sim", replace=False)

    def type(self, *words: str) -> int:
        """The exit code of a Python command given in the folder; -9 when it was killed."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("UTU_", "OPENAI_"))}
        path = [
            str(Path("src").resolve()),
            str(Path.cwd()),
            *filter(None, [kept.get("PYTHONPATH")]),
        ]
        with (self.folder / "log").open("a", encoding="utf-8") as log:
            return subprocess.run(
                [sys.executable, *words],
                cwd=self.folder,
                env={
                    **kept,
                    "PYTHONPATH": os.pathsep.join(path),
                    "XDG_CONFIG_HOME": str(self.folder / "user"),
                    "TMPDIR": str(self.folder / "tmp"),
                },
                stdout=log,
                stderr=log,
                timeout=HANG_S,
                check=False,
            ).returncode

    def practise(self, place: str | None = None, n: int = 0) -> int:
        """Practise, killed at the n-th visit of the place if there is one."""
        return self.give(PRACTISE, place, n)

    def give(self, command: str, place: str | None = None, n: int = 0) -> int:
        """Give a command, killed at the n-th visit of the place if there is one."""
        words = shlex.split(command.replace("URL", f"{self.endpoint.root}/v1"))
        # Runs are compared by what they ask, fences and all. Only the first process may choose the
        # key: a later one that does not go on with the stored one asks otherwise.
        begun = self.query("SELECT 1 FROM runs")
        if place is None and begun:
            return self.type("-m", "grpo_practice", *words)
        key = "-" if begun else KEY
        return self.type("-m", "tests.endurance.victim", place or "nowhere", str(n), key, *words)

    def query(self, sql: str) -> list[Any]:
        """What is in the database."""
        with closing(sqlite3.connect(self.folder / "grpo-practice.db")) as db:
            return db.execute(sql).fetchall()

    def results(self) -> str:
        """A hash over every response, reward, library, operation and call."""
        found = [self.query(sql) for sql in RESULTS]
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()

    def lost(self) -> tuple[int, int]:
        """Requests the endpoint has answered that are not in the database, and all that are not."""
        seen, stored = self.endpoint.get("stats"), self._calls() - self._stored
        return seen["answered"] - stored, seen["received"] - stored

    def _calls(self) -> int:
        """Requests to the endpoint whose replies are stored."""
        count: int = self.query("SELECT count(*) FROM calls WHERE tries > 0")[0][0]
        return count

    def left(self) -> list[str]:
        """Processes and temporary files of commands that have ended."""
        deadline = time.monotonic() + ENDING_S
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for file in (self.folder / "tmp").iterdir():  # each is reported once
            shutil.rmtree(file, ignore_errors=True)
        return found

    def _left(self) -> list[str]:
        found = [f"file {path.name}" for path in (self.folder / "tmp").iterdir()]
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it may have ended, or be another user's
                if (process / "cwd").readlink().is_relative_to(self.folder):
                    found.append(f"process {(process / 'cmdline').read_bytes()!r}")
        return found

    def shown(self, command: str) -> Any:
        """The document of the command, without its times."""
        before = (self.folder / "log").stat().st_size
        assert self.give(f"{command} --json") == 0, self.log()
        text = (self.folder / "log").read_bytes()[before:].decode()
        return json.loads(text[text.index("{") :], object_hook=_timeless)

    def log(self) -> str:
        """What the commands wrote."""
        return (self.folder / "log").read_text("utf-8")

    def wrong(self) -> list[str]:
        """What is wrong with the database."""
        return [text for look in check(self.folder / "grpo-practice.db") for text in look.wrong]


def _timeless(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in TIMES}


@dataclass
class Tally:
    """What the kills came to."""

    costs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Place → for each kill there, the requests whose replies it cost."""
    unwritten: int = 0
    """The most replies that one kill found on their way from the endpoint to the database."""
    runs: int = 0
    twice: int = 0
    """Requests that were paid more than once."""
    wrong: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """All of them."""
        return sum(map(len, self.costs.values()))

    def add(self, place: str, n: int, unwritten: int, lost: int) -> None:
        """A kill at the n-th visit of a place, which cost so many replies and requests.

        What was answered is committed at once, so there are never many replies that are not.
        """
        self.costs[place].append(lost)
        self.unwritten = max(self.unwritten, unwritten)
        if unwritten > MOST_UNWRITTEN or lost - unwritten > CONCURRENCY:
            self.wrong.append(
                f"a kill at visit {n} of {place} lost {unwritten} replies that had come,"
                f" and {lost - unwritten} that were on their way"
            )

    def least(self, places: Visits) -> str:
        """The place of these where fewest kills were."""
        return min(places, key=lambda place: len(self.costs[place]))

    @override
    def __str__(self) -> str:
        lines = [f"{'killed in':14}{'kills':>6}  replies lost: min median max"]
        for place, costs in self.costs.items():
            median = f"{statistics.median(costs):g}"
            counts = f"{min(costs):>17}{median:>7}{max(costs):>4}"
            lines.append(f"{place:14}{len(costs):>6}{counts}")
        lost = sum(map(sum, self.costs.values()))
        lines.append(f"{self.kills} kills in {self.runs} runs; {lost} replies lost,")
        lines.append(f"at most {self.unwritten} in one kill had come and were not yet stored;")
        lines.append(f"{self.twice} requests paid twice; {len(self.wrong)} things wrong")
        return "\n".join([*lines, *self.wrong])


def torment(folder: Path, kills: int, seed: int, case: Case = CASES["practice"]) -> Tally:
    """So many kills, spread over all places, and what they came to."""
    rng, tally = random.Random(seed), Tally()
    with endpoint() as server:
        start = Run(folder / "start", server)
        for command in case.before:
            assert start.give(command) == 0, start.log()
        whole = Run(folder / "whole", server, start.folder)
        for command, _ in case.commands:
            assert whole.give(command) == 0, whole.log()
        asked, expected, shown = server.get("stats"), whole.results(), whole.shown(case.shows)
        while tally.kills < kills:
            run = Run(folder / f"run{tally.runs}", server, start.folder)
            lost = _kill_to_the_end(run, case, tally, kills, rng)
            tally.runs += 1
            now = server.get("stats")
            twice = Counter(now["seen"]) - Counter(asked["seen"])
            tally.twice += twice.total()
            wrong = run.wrong()
            if (run.results(), run.shown(case.shows), server.get("stats")) != (
                expected,
                shown,
                now,
            ):
                wrong.append("the results are not those of the run that was left alone")
            if now["seen"].keys() != asked["seen"].keys():
                wrong.append(f"{now['different']} requests instead of {asked['different']}")
            if twice.total() > lost:
                wrong.append(f"{twice.total()} paid twice, {lost} lost")
            tally.wrong += [f"{run.folder}: {text}" for text in [*wrong, *run.left()]]
    return tally


def _kill_to_the_end(run: Run, case: Case, tally: Tally, kills: int, rng: random.Random) -> int:
    """Kill each command again and again, and once there were enough kills let them end.

    Returns:
        How many replies the kills cost.
    """
    unwritten = lost = 0
    for command, up_to in case.commands:
        while tally.kills < kills:
            place = tally.least(up_to)
            first = place == "rollouts" and not tally.kills
            n = ALL_ANSWERED if first else rng.randint(1, up_to[place])
            code = run.give(command, place, n)
            if code == 0:
                break
            assert code == -9, run.log()
            unwritten_before, lost_before = unwritten, lost
            unwritten, lost = run.lost()
            tally.add(place, n, unwritten - unwritten_before, lost - lost_before)
            tally.wrong += [f"{run.folder}: after visit {n} of {place}: {it}" for it in run.left()]
        else:
            assert run.give(command) == 0, run.log()
    return lost


def main() -> int:
    """Serve, or kill and tell; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, help="only this one (default: all)")
    parser.add_argument("--kills", type=int, help="for each case (default: 60 and 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true", help="only be the endpoint")
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve())
        return 0
    wrong = False
    for name in [args.case] if args.case else CASES:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            tally = torment(Path(folder).resolve(), args.kills or case.kills, args.seed, case)
        sys.stdout.write(f"{name}\n{tally}\n")
        sys.stdout.flush()
        wrong = wrong or bool(tally.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
