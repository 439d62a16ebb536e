"""Practice runs that are killed wherever it hurts, and gone on with: is anything lost or different?

    python -m tests.endurance.kill [--kills 60] [--seed 0]

A run of three steps is killed with SIGKILL, the same command is given again, is killed again, and
so on until it comes to its end. The endpoint is a process of its own that answers the same to the
same and counts. Prints what each kill cost, and exits 1 when a run came to other results than one
that was left alone.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
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

LATENCY_S = 0.04
"""The time between two replies: they come one by one, so that each has time to be stored."""
CONCURRENCY = 8
MOST_UNWRITTEN = CONCURRENCY - 1
"""The most replies a kill may cost that had come: 280 ms of them, which spares a busy machine."""
STEPS = 3
UP_TO = {"rollouts": 60, "verification": 25, "distillation": 40, "merge": 5, "closing": 5}
"""At which visit of each place the command is killed, at most."""
ALL_ANSWERED = 2 * CONCURRENCY
"""The visit of the rollouts at which, were nothing committed, all who were sent are answered."""
TIMEOUT_S = 120
CONFIG = f"""
exp_id: killed
practice: {{epochs: 1, batch_size: 6, grpo_n: 4, rollout_concurrency: {CONCURRENCY}}}
data: {{practice_dataset_name: train}}
evaluation:
  verify: check.py:check
  data: {{dataset: train}}
  agent:
    model: {{model_provider: {{model: sim}}}}
    agent: {{name: solver, instructions: "Solve it. Put the answer in \\\\boxed{{}}."}}
"""
CHECK = """
def check(sample, **kwargs):
    return {"reward": float("{" + str(sample.correct_answer) + "}" in sample.response)}
"""
KEY = "5f" * 32
"""Secret of the fences of every run."""
RESULTS = (
    """SELECT r.step, r.slot, r.attempt, r.outcome, b.response, r.reward FROM v_rollouts r
         JOIN rollout_bodies b USING (rollout_id) ORDER BY 1, 2, 3""",
    """SELECT s.step, s.status, s.stats, hex(l.sha256), i.position, t.text FROM v_steps s
         JOIN libraries l ON l.library_id = s.library_out
         LEFT JOIN library_items i USING (library_id)
         LEFT JOIN experience_texts t USING (experience_id, version) ORDER BY 1, 5""",
    "SELECT step, slot, ordinal, source, op, text, status FROM operations ORDER BY 1, 2, 4, 3",
    "SELECT step, slot, attempt, stage, hex(request_hash), nth FROM calls ORDER BY 1, 2, 3, 4, 5",
)


async def serve() -> None:
    """Answer as the simulated endpoint does, and count by what was asked; `/forget` begins anew."""
    seen: Counter[bytes] = Counter()
    stages: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    turn = asyncio.Lock()

    async def reply(request: web.Request) -> web.Response:
        content = await request.read()
        body = json.loads(content)
        asked = json.dumps(body, sort_keys=True).encode()
        seen[hashlib.sha256(asked).digest()] += 1
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
    """A practice run in a folder of its own."""

    folder: Path
    endpoint: Endpoint

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "c.yaml").write_text(CONFIG, "utf-8")
        (self.folder / "check.py").write_text(CHECK, "utf-8")
        with Store(self.folder / "grpo-practice.db") as store:
            store.add_dataset("train", questions(18, 0), origin="sim", replace=False)
        self.endpoint.get("forget")

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
                },
                stdout=log,
                stderr=log,
                timeout=TIMEOUT_S,
                check=False,
            ).returncode

    def practise(self, place: str | None = None, n: int = 0) -> int:
        """The same command again, killed at the n-th visit of the place if there is one."""
        key = "evaluation.agent.model.model_provider.base_url"
        words = ["practice", "--config", "c.yaml", "--set", f"{key}={self.endpoint.root}/v1"]
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
        seen, stored = self.endpoint.get("stats"), self.query("SELECT count(*) FROM calls")[0][0]
        return seen["answered"] - stored, seen["received"] - stored

    def wrong(self) -> list[str]:
        """What is wrong with the database."""
        return [text for look in check(self.folder / "grpo-practice.db") for text in look.wrong]


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

    def least(self) -> str:
        """The place where fewest kills were."""
        return min(UP_TO, key=lambda place: len(self.costs[place]))

    @override
    def __str__(self) -> str:
        lines = [f"{'killed in':14}{'kills':>6}  replies lost: min median max"]
        for place in UP_TO:
            costs = self.costs[place] or [0]
            median = f"{statistics.median(costs):g}"
            counts = f"{min(costs):>17}{median:>7}{max(costs):>4}"
            lines.append(f"{place:14}{len(self.costs[place]):>6}{counts}")
        lost = sum(map(sum, self.costs.values()))
        lines.append(f"{self.kills} kills in {self.runs} runs; {lost} replies lost,")
        lines.append(f"at most {self.unwritten} in one kill had come and were not yet stored;")
        lines.append(f"{self.twice} requests paid twice; {len(self.wrong)} things wrong")
        return "\n".join([*lines, *self.wrong])


def torment(folder: Path, kills: int, seed: int) -> Tally:
    """So many kills, spread over all places, and what they came to."""
    rng, tally = random.Random(seed), Tally()
    with endpoint() as server:
        whole = Run(folder / "whole", server)
        assert whole.practise() == 0, (whole.folder / "log").read_text("utf-8")
        asked, expected = server.get("stats"), whole.results()
        assert asked["received"] == asked["different"]
        while tally.kills < kills:
            run = Run(folder / f"run{tally.runs}", server)
            lost = _kill_to_the_end(run, tally, kills, rng)
            tally.runs += 1
            now = server.get("stats")
            tally.twice += now["received"] - now["different"]
            wrong = run.wrong()
            if run.results() != expected:
                wrong.append("the results are not those of the run that was left alone")
            if now["different"] != asked["different"]:
                wrong.append(f"{now['different']} requests instead of {asked['different']}")
            if now["received"] - now["different"] > lost:
                wrong.append("more was paid twice than was lost")
            tally.wrong += [f"{run.folder}: {text}" for text in wrong]
    return tally


def _kill_to_the_end(run: Run, tally: Tally, kills: int, rng: random.Random) -> int:
    """Kill the run again and again, and once there were enough kills let it end.

    Returns:
        How many replies the kills cost.
    """
    unwritten = lost = 0
    while tally.kills < kills:
        place = tally.least()
        n = rng.randint(1, UP_TO[place]) if tally.kills else ALL_ANSWERED
        code = run.practise(place, n)
        if code == 0:
            return lost
        assert code == -9, (run.folder / "log").read_text("utf-8")
        unwritten_before, lost_before = unwritten, lost
        unwritten, lost = run.lost()
        tally.add(place, n, unwritten - unwritten_before, lost - lost_before)
    assert run.practise() == 0, (run.folder / "log").read_text("utf-8")
    return lost


def main() -> int:
    """Serve, or kill and tell; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true", help="only be the endpoint")
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve())
        return 0
    with tempfile.TemporaryDirectory() as folder:
        tally = torment(Path(folder), args.kills, args.seed)
    sys.stdout.write(f"{tally}\n")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
