"""Gain of practice on recorded attempts, and the reading of 100,000 of them.

100 questions x 5 attempts of the agent without a library, in 24 worlds through the client, against
one epoch of live practice on the same questions, with as many calls of the teacher. Then the same
with 30 % of the attempts from a weaker model, which solves about half as many questions. Gain is
the exact mean score of 200 other questions with the library, less that without, in points. There is
nothing to repeat: the seeds decide everything, and `runs` is not looked at.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any
from unittest.mock import patch

from bench.harness import Row, at_least, at_most, folder, write_config
from bench.learning import SOLVER, paired
from bench.toy import Toy, asked
from grpo_practice.core.prompts.system import render_library
from grpo_practice.llm import sim
from grpo_practice.run.evaluation_run import prepare_eval, run_eval
from grpo_practice.run.practice_run import prepare_practice, run_practice
from grpo_practice.run.requests.runs import EvalRequest, PracticeRequest
from grpo_practice.run.rollouts import rollouts_of
from grpo_practice.run.session import Session
from grpo_practice.sim.experience_texts import keys_in
from grpo_practice.sim.world import Difficulty, Teaching, World
from grpo_practice.store import Store

SEEDS, ATTEMPTS, BATCH = 24, 5, 50
WEAKER, SHARE = Difficulty(0.4, 1.2), 0.3
NOISES = (0.0, 0.15)
LINES, CHARS = 100_000, 2_000
READ = """
import json, sys, time
from pathlib import Path
from grpo_practice.data.attempts import StagedAttempts, stage_lines
begun, staged = time.monotonic(), StagedAttempts()
stage_lines(staged, Path(sys.argv[1]))
staged.settle(rewards=True)
# Not ru_maxrss, which begins with the memory of the process that started this one.
peak = next(x for x in open("/proc/self/status") if x.startswith("VmHWM"))
figures = (time.monotonic() - begun, time.process_time(), int(peak.split()[1]) / 1024)
print(json.dumps([round(n, 1) for n in figures]))
"""
"""Program that reads a file, in a process of its own for its memory."""
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Learnt:
    """Gain of a library in points, and the calls that it took."""

    gain: float
    teacher: int
    student: int


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Compare recorded with live practice, and measure the reading of a long file."""
    found, questions = list[Row](), 10 if tiny else 100
    for noise in NOISES[: 1 if tiny else None]:
        worlds = [
            World(seed, teacher=Teaching(noise=noise)) for seed in range(2 if tiny else SEEDS)
        ]
        live = [_live(world, questions) for world in worlds]
        own = [_lines(world, questions) for world in worlds]
        weak = [_lines(replace(world, difficulty=WEAKER), questions) for world in worlds]
        mixed = [_mixed(*of) for of in zip(own, weak, range(len(own)), strict=True)]
        for name, files, target in (("own", own, 85), ("30 % of a weaker model", mixed, 75)):
            done = [_recorded(*of) for of in zip(worlds, files, live, strict=True)]
            found.append(_row(f"noise {noise:g}, {name}", done, live, target))
    return [*found, *_reading(1_000 if tiny else LINES)]


def _row(name: str, done: Sequence[Learnt], live: Sequence[Learnt], target: float) -> Row:
    gain, ours, theirs = (
        paired([x.gain - y.gain for x, y in zip(done, live, strict=True)]),
        paired([x.gain for x in done]),
        paired([x.gain for x in live]),
    )
    notes = {
        "gain, live": f"{theirs[0]:.2f} (SE {theirs[1]:.2f})",
        "gain, recorded": f"{ours[0]:.2f} (SE {ours[1]:.2f}); difference {gain[0]:+.2f}"
        f" (SE {gain[1]:.2f})",
        "teacher calls": f"{fmean(x.teacher for x in done):.0f}, live"
        f" {fmean(x.teacher for x in live):.0f}",
        "rollouts": f"{fmean(x.student for x in done):.0f}, live"
        f" {fmean(x.student for x in live):.0f}",
    }
    share = 100 * ours[0] / theirs[0]
    title = f"{name}: gain, % of live practice"
    return Row(title, f"≥ {target:g}", [share], at_least(target), notes)


def _live(world: World, n: int) -> Learnt:
    return _practised(world, n, {"grpo_n": ATTEMPTS}, [])


def _recorded(world: World, lines: Sequence[Line], live: Learnt) -> Learnt:
    """Learn with as many calls of the teacher as live practice: two a group, and one a step."""
    groups = max((live.teacher - 1) // 2, 1)
    settings = {"attempts": "attempts.jsonl", "rollout_data_truncate": groups}
    return _practised(world, 0, settings, lines)


def _practised(world: World, n: int, practice: Mapping[str, Any], lines: Sequence[Line]) -> Learnt:
    with _database(world, max(n, 1)) as (here, store):
        (here / "attempts.jsonl").write_text("\n".join(map(json.dumps, lines)))
        settings = {"epochs": 1, "batch_size": BATCH, "seed": world.seed, **practice}
        evaluation = {"agent": SOLVER, "verify": "math"}
        data, config = {"practice_dataset_name": "tasks"}, here / "c.yaml"
        write_config(config, "", practice=settings, data=data, evaluation=evaluation)
        session = Session(store, lambda event: None, "bench")
        job = prepare_practice(session, PracticeRequest(config=config, env={}))
        report = asyncio.run(run_practice(job))
        sql = "SELECT role, count(*) FROM calls GROUP BY role"
        calls = dict(store.read(lambda db: [tuple(row) for row in db.execute(sql)]))
    gain = Toy(world).gain(keys_in(render_library(report.library)))
    return Learnt(gain, calls.get("teacher", 0), calls.get("student", 0))


def _lines(world: World, n: int) -> list[Line]:
    """Return attempts of the world's agent without a library, with their rewards."""
    with _database(world, n) as (here, store):
        warm = {"model_provider": {"model": "sim"}, "model_settings": {"temperature": 0.7}}
        evaluation = {
            "agent": {**SOLVER, "model": warm},
            "verify": "math",
            "data": {"dataset": "tasks"},
            "pass_k": ATTEMPTS,
            "seed": 1_000 + world.seed,
        }
        config = here / "c.yaml"
        write_config(config, "", data={"practice_dataset_name": "tasks"}, evaluation=evaluation)
        session = Session(store, lambda event: None, "bench")
        job = prepare_eval(session, EvalRequest(config=config, env={}))
        report = asyncio.run(run_eval(job))
        return [
            {
                "question": one.rollout.sample.question,
                "answer": one.rollout.sample.answer,
                "response": one.rollout.played.response,
                "reward": one.rollout.reward,
                "created": one.rollout.attempt,
            }
            for one in rollouts_of(store, report.run)
        ]


def _mixed(own: Sequence[Line], weak: Sequence[Line], seed: int) -> list[Line]:
    draw = Random(seed)
    return [b if draw.random() < SHARE else a for a, b in zip(own, weak, strict=True)]


@contextmanager
def _database(world: World, n: int) -> Iterator[tuple[Path, Store]]:
    """Give a folder and a database with `n` questions, on the simulated endpoint of a world."""
    with (
        patch.object(sim, "SimTransport", partial(sim.SimTransport, world)),
        folder() as here,
        Store(here / "p.db") as store,
    ):
        store.add_dataset("tasks", asked()[:n], origin="sim", replace=False)
        yield here, store


def _reading(n: int) -> list[Row]:
    """Read and group a long file."""
    with folder() as here:
        draw, file = Random(0), here / "long.jsonl"
        with file.open("w") as out:
            for i in range(n):
                question = f"Question {draw.randrange(n // 5)}"
                line = {"question": question, "response": f"{i} ".ljust(CHARS, "x")}
                out.write(json.dumps({**line, "reward": float(draw.random() < 0.5)}) + "\n")
        command = [sys.executable, "-c", READ, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, cpu, mib = json.loads(done.stdout)
    return [
        Row(f"{n:,} attempts read and grouped: s", "≤ 30", [seconds], at_most(30), {"CPU s": cpu}),
        Row(f"{n:,} attempts read and grouped: peak memory, MiB", "≤ 200", [mib], at_most(200)),
    ]
