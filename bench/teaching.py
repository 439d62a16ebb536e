"""Gain under a teacher that errs in several ways, and the cost of letting it read summaries.

Eight worlds of each of `TEACHERS` through the client. Then 100 worlds without client (see `toy`),
where four ways of counting are compared on the same luck: nothing is counted, as the published
pipeline leaves it to the merge model; lessons vote; lessons vote and rewards speak; and new
experiences are on trial as well, which is what the program does. Then a teacher that is wrong about
a share of the groups, in 20 worlds through the client, on three kinds of tasks, with summaries and
without. There is nothing to repeat: the seeds decide everything, and `runs` is not looked at.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from bench.harness import Row, at_most
from bench.learning import SOLVER, Practised, paired, practised_in
from bench.toy import TESTED, Outcome, Policy, Toy
from grpo_practice.sim.questions import Task, questions
from grpo_practice.sim.world import Rule, Teaching, World

NOISES = (0.0, 0.15, 0.3, 0.45)
SEEDS, CLIENT_SEEDS, TEACHER_SEEDS = 100, 20, 8
KINDS = "right / null / wrong experiences"
POLICIES: Mapping[str, Policy] = {
    "nothing counted": Policy(counting="nothing", trials=False),
    "votes counted": Policy(counting="votes", trials=False),
    "votes and rewards counted": Policy(trials=False),
    "votes, rewards and trials": Policy(),
}
"""The last one is what the program does; the first is the published method, whose merge model
decides alone.
"""
TASKS: Mapping[Task, int] = {"math": 50, "labels": 50, "tools": 20}
"""Questions of each; a task with tools takes some ten turns and 20,000 tokens an attempt."""
TOOLS = {
    "max_turns": 16,
    "toolkits": {
        "python_executor": {
            "name": "python_executor",
            "mode": "builtin",
            "config": {"backend": "monty"},
        }
    },
}


WORDED = Teaching(noise=0.3, wordings=4)
GRADED = Rule(p_null=0.0, size=(0.0, 1.3), harm_size=(0.0, 0.9))
"""Effects between -20 and +30 points, many of them small."""
ONE_LESSON = {"num_experiences_per_query": 1}
TEACHERS: Mapping[str, tuple[World, Mapping[str, Any]]] = {
    **{f"noise {noise:g}": (World(teacher=Teaching(noise=noise)), {}) for noise in NOISES},
    "biased about 30 % of the topics": (World(teacher=Teaching(bias=0.3)), {}),
    "noise 0.3, only additions": (World(teacher=replace(WORDED, adds=1.0)), {}),
    "noise 0.3, 30 % additions": (World(teacher=replace(WORDED, adds=0.3)), {}),
    "a truism first, one lesson": (World(teacher=Teaching(truism=1.0)), ONE_LESSON),
    "graded effects": (World(rule=GRADED), {}),
    "graded effects, noise 0.3": (World(rule=GRADED, teacher=Teaching(noise=0.3)), {}),
}
"""Worlds by the way in which their teacher errs, and the settings of the practice in them."""


@dataclass(frozen=True, slots=True)
class Run:
    """Results of a run through the client."""

    gain: float
    """Points on other questions."""
    kinds: Counter[str]
    """Experiences of the last library."""
    calls: int
    tokens: int
    """Tokens of the teacher."""
    student_tokens: int


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Return the gain by teacher, noise, counting, task and summaries; calls and tokens."""
    found = teachers(10 if tiny else 100, 2 if tiny else TEACHER_SEEDS)
    found += _without_client(3 if tiny else SEEDS)
    for task, n in TASKS.items():
        if not (tiny and task == "tools"):
            found += _through_the_client(task, 10 if tiny else n, 2 if tiny else CLIENT_SEEDS)
    return found


def teachers(n: int, seeds: int) -> list[Row]:
    """Practise on `n` sums with each teacher, through the client."""
    found = list[Row]()
    for name, (world, practice) in TEACHERS.items():
        runs = [run_of(replace(world, seed=seed), n, practice) for seed in range(seeds)]
        gain, error = paired([run.gain for run in runs])
        notes = {
            "standard error": round(error, 2),
            KINDS: _kinds([run.kinds for run in runs]),
            "teacher calls": round(fmean(run.calls for run in runs), 1),
            "teacher tokens": round(fmean(run.tokens for run in runs)),
            "student tokens": round(fmean(run.student_tokens for run in runs)),
        }
        found.append(Row(f"{name}: gain, points", "", [gain], None, notes))
    return found


def _without_client(n: int) -> list[Row]:
    found = list[Row]()
    for policy_name, policy in POLICIES.items():
        done: dict[str, list[Outcome]] = {
            name: [Toy(replace(world, seed=seed)).practise(policy) for seed in range(n)]
            for name, (world, practice) in TEACHERS.items()
            if not practice  # the toy knows no such setting
        }
        for name, outcomes in done.items():
            row = _row(
                f"{policy_name}, {name}",
                [o.gains[-1] for o in outcomes],
                [o.gains[-1] for o in done["noise 0"]],
                [o.library for o in outcomes],
                target=policy.trials and name == "noise 0.3",
            )
            row.notes["experiences shown"] = round(
                sum(o.shown for o in outcomes) / sum(o.rollouts for o in outcomes), 2
            )
            found.append(row)
    return found


def _through_the_client(task: Task, n: int, seeds: int) -> list[Row]:
    found = list[Row]()
    for summaries in ("always", "auto"):
        practice = {"summaries": summaries}
        done = {
            noise: [
                run_of(World(seed, task=task, teacher=Teaching(noise=noise)), n, practice)
                for seed in range(seeds)
            ]
            for noise in NOISES
        }
        for noise, of in done.items():
            row = _row(
                f"{task}, summaries {summaries}, noise {noise:g}",
                [run.gain for run in of],
                [run.gain for run in done[0.0]],
                [run.kinds for run in of],
                target=noise == 0.3,
            )
            row.notes |= {
                "teacher calls": round(fmean(run.calls for run in of), 1),
                "teacher tokens": round(fmean(run.tokens for run in of)),
            }
            found.append(row)
    always, auto = found[: len(NOISES)], found[len(NOISES) :]
    for what, most in (("teacher calls", 45), ("teacher tokens", 60)):
        share = 100 * sum(r.notes[what] for r in auto) / sum(r.notes[what] for r in always)
        name = f"{task}: {what} of auto, % of always"
        found.append(Row(name, f"≤ {most}", [share], at_most(most)))
    return found


def run_of(world: World, n: int, practice: Mapping[str, Any]) -> Run:
    """Practise on `n` questions of the world's task, as the command does."""
    made = questions(n + TESTED, 0, world.task)
    agent = {**SOLVER, **TOOLS} if world.task == "tools" else SOLVER
    verify = "exact" if world.task == "labels" else "math"
    run: Practised = practised_in(
        world, made[:n], {"batch_size": n // 2, **practice}, agent=agent, verify=verify
    )
    keys, tests = run.libraries[-1], [sample.question for sample in made[n:]]
    gain = 100 * float((world.truth(tests, keys) - world.truth(tests, ())).mean())
    return Run(
        gain, Counter(world.item(key).kind for key in keys), *run.teacher, run.student_tokens
    )


def _kinds(libraries: Sequence[Counter[str]]) -> str:
    means = (fmean(library[kind] for library in libraries) for kind in ("help", "null", "harm"))
    return " / ".join(f"{mean:.1f}" for mean in means)


def _row(
    name: str,
    gains: Sequence[float],
    without_noise: Sequence[float],
    kinds: Sequence[Counter[str]],
    *,
    target: bool,
) -> Row:
    """Tell the mean gain; the target is its share of the gain without noise."""
    share = 100 * fmean(gains) / fmean(without_noise)
    notes = {
        "standard error": round(paired(gains)[1], 2),
        "of the gain without noise": f"{share:.0f} %",
        KINDS: _kinds(kinds),
    }
    reached = (lambda _: share >= 90) if target else None
    return Row(
        f"{name}: gain, points",
        "≥ 90 % of noise 0" if target else "",
        [fmean(gains)],
        reached,
        notes,
    )
