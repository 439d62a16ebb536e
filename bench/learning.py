"""Simulated effect of overlapping steps and of fewer rollouts on the gain of a run.

100 questions x 5 attempts x 3 epochs in batches of 50, 200 worlds, each practised under every
policy on the same luck (see `toy`); the first of them also through the client, the prompts and the
store. Gain is the exact mean score of 200 other questions with the library, less that without, in
points. There is nothing to repeat: the seeds decide everything, and `runs` is not looked at.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

from bench.harness import Row, folder, write_config
from bench.toy import EPOCHS, Outcome, Policy, Toy, asked
from grpo_practice.core.prompts.system import render_library
from grpo_practice.core.types import Library, Sample
from grpo_practice.llm import sim
from grpo_practice.run.practice_run import prepare_practice, run_practice
from grpo_practice.run.requests.runs import PracticeRequest
from grpo_practice.run.session import Session
from grpo_practice.sim.experience_texts import keys_in
from grpo_practice.sim.world import Difficulty, Teaching, World
from grpo_practice.store import Store, libraries

SEEDS, CLIENT_SEEDS = 200, 10
FIXED = Policy()
OVERLAPS = {f"overlap {share:g}": Policy(overlap=share) for share in (0.25, 0.5, 1.0)}
OTHERS = {
    "fixed, G 4": Policy(attempts=4),
    "fixed, 80 questions": Policy(questions=80),
}
"""Fewer rollouts."""
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "easier": {"difficulty": Difficulty(1.2, 0.4)},
    "harder": {"difficulty": Difficulty(0.4, 1.2)},
    "middling": {"difficulty": Difficulty(2.0, 2.0)},
    "clear-sighted teacher": {"teacher": Teaching(miss=0.0)},
    "20-question": {},
}
"""The clear-sighted teacher sees in one attempt of each kind all there is to see."""
QUESTIONS = {"20-question": 20}
"""In the other worlds 100, of which the first epoch teaches nearly all there is to learn."""
SOLVER = {
    "model": {"model_provider": {"model": "sim"}},
    "agent": {"name": "solver", "instructions": "Solve it. Put the answer in \\boxed{}."},
}
Outcomes = Mapping[str, Sequence[Outcome]]


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Compare rollouts and gain of each policy with `fixed`, and the toy with the client."""
    n = 3 if tiny else SEEDS
    found = list[Row]()
    for world, changes in WORLDS.items():
        policies = {"fixed": FIXED}
        if world == "default":
            policies |= OVERLAPS | OTHERS
        else:
            policies |= {"overlap 0.5": OVERLAPS["overlap 0.5"], "fixed, G 4": OTHERS["fixed, G 4"]}
        if world in QUESTIONS:
            policies = {p: replace(of, questions=QUESTIONS[world]) for p, of in policies.items()}
        done = practised(n, changes, policies)
        for policy in list(policies)[1:]:
            found += _against_fixed(world, policy, done)
    return [*found, *_through_the_client(2 if tiny else CLIENT_SEEDS, tiny=tiny)]


def practised(
    n: int, changes: Mapping[str, Any], policies: Mapping[str, Policy]
) -> dict[str, list[Outcome]]:
    """Play every policy in each of `n` worlds."""
    done: dict[str, list[Outcome]] = {name: [] for name in policies}
    for seed in range(n):
        toy = Toy(World(seed=seed, **changes))
        for name, policy in policies.items():
            done[name].append(toy.practise(policy))
    return done


def _against_fixed(world: str, policy: str, done: Outcomes) -> list[Row]:
    """Return what the policy saves, and the difference it makes in the same worlds."""
    ours, fixed = done[policy], done["fixed"]
    what = f"{world} world, {policy}"
    share = 100 * fmean(o.rollouts for o in ours) / fmean(o.rollouts for o in fixed)
    found = list[Row]()
    if "overlap" not in policy:
        found.append(Row(f"{what}: rollouts, % of fixed", "", [share]))
    last, error = paired([o.gains[-1] - f.gains[-1] for o, f in zip(ours, fixed, strict=True)])
    half = len(fixed[0].gains) // EPOCHS - 1
    early = paired([o.gains[half] - f.gains[half] for o, f in zip(ours, fixed, strict=True)])
    notes = {
        "gain": f"{_gain(ours):.2f}, fixed {_gain(fixed):.2f}",
        "standard error of the difference": f"{error:.3f}; of two means that are not paired "
        f"{sqrt(_error(ours) ** 2 + _error(fixed) ** 2):.3f}",
        "the same after the first epoch": f"{early[0]:+.2f} (SE {early[1]:.2f})",
        "library": f"{_each(o.library for o in ours)}; fixed {_each(o.library for o in fixed)}",
        "proposals": f"{_each(o.edits for o in ours)}; fixed {_each(o.edits for o in fixed)}",
        "groups compared": f"{fmean(o.mixed for o in ours):.1f}, "
        f"fixed {fmean(o.mixed for o in fixed):.1f}",
    }
    return [*found, Row(f"{what}: gain, points above fixed", "", [last], None, notes)]


def _through_the_client(n: int, *, tiny: bool) -> list[Row]:
    """Play the same policies through the program's own code, to check the toy."""
    q = 10 if tiny else FIXED.questions
    policies: dict[str, tuple[dict[str, Any], Policy]] = {
        "fixed": ({}, Policy(questions=q)),
        "overlap 0.5": ({"overlap": 0.5}, Policy(overlap=0.5, questions=q)),
    }
    done: dict[str, list[Outcome]] = {name: [] for name in policies}
    toys: dict[str, list[Outcome]] = {name: [] for name in policies}
    for seed in range(n):
        toy = Toy(World(seed=seed))
        for name, (practice, policy) in policies.items():
            toys[name].append(toy.practise(policy))
            done[name].append(through_the_client(toy, policy, practice))
    found = list[Row]()
    for name in policies:
        if name != "fixed":
            found += _against_fixed("default", name, done)
        more, error = paired(
            [c.gains[-1] - t.gains[-1] for c, t in zip(done[name], toys[name], strict=True)]
        )
        played = [fmean(o.rollouts for o in of[name]) for of in (done, toys)]
        notes = {
            "standard error": round(error, 3),
            "rollouts": f"{played[0]:.0f}, toy {played[1]:.0f}",
            "groups compared": f"{fmean(o.mixed for o in done[name]):.1f}, "
            f"toy {fmean(o.mixed for o in toys[name]):.1f}",
        }
        title = f"{name}: gain through the client, points above the toy"
        found.append(
            Row(title, "within 3 SE", [more], lambda v, e=error: abs(v) <= 3 * e, notes)  # type: ignore[misc]
        )
    for row in found:
        row.name = row.name.replace("default world", f"{n} worlds through the client")
    return found


def through_the_client(toy: Toy, policy: Policy, practice: Mapping[str, Any]) -> Outcome:
    """Practise in the toy's world as the command does, on the simulated endpoint."""
    practice = {"batch_size": policy.questions // 2, "grpo_n": policy.attempts, **practice}
    run = practised_in(toy.world, asked()[: policy.questions], practice)
    return Outcome(
        rollouts=sum(played for _, played in run.groups),
        gains=[toy.gain(keys) for keys in run.libraries],
        mixed=sum(0 < wins < played for wins, played in run.groups),
        edits=toy.kinds(next(iter(keys_in(text or "")), None) for text in run.proposed),
        library=toy.kinds(run.libraries[-1]),
    )


@dataclass(frozen=True, slots=True)
class Practised:
    """Numbers that a practice run through the client left in its database."""

    libraries: Sequence[Sequence[str]]
    """The keys of the library after each step."""
    groups: Sequence[tuple[float, int]]
    """Sum of the rewards, and rollouts, of each group."""
    proposed: Sequence[str | None]
    """The text of each operation that a group proposed."""
    teacher: tuple[int, int]
    """Calls of the teacher, and their tokens."""
    student_tokens: int


def practised_in(
    world: World,
    samples: Sequence[Sample],
    practice: Mapping[str, Any],
    *,
    agent: Mapping[str, Any] = SOLVER,
    verify: str = "math",
) -> Practised:
    """Practise on these questions as the command does, on the simulated endpoint of a world."""
    practice = {"epochs": EPOCHS, "rollout_concurrency": 16, "seed": world.seed, **practice}
    with (
        patch.object(sim, "SimTransport", partial(sim.SimTransport, world)),
        folder() as here,
        Store(here / "p.db") as store,
    ):
        store.add_dataset("tasks", list(samples), origin="sim", replace=False)
        config = here / "c.yaml"
        data, evaluation = {"practice_dataset_name": "tasks"}, {"agent": agent, "verify": verify}
        write_config(config, "", practice=practice, data=data, evaluation=evaluation)
        session = Session(store, lambda event: None, "bench")
        job = prepare_practice(session, PracticeRequest(config=config, env={}))
        report = asyncio.run(run_practice(job))

        def rows(sql: str) -> list[Any]:
            return store.read(lambda db: [tuple(row) for row in db.execute(sql)])

        used = {
            role: (calls, tokens)
            for role, calls, tokens in rows(
                "SELECT role, count(*), sum(tokens_in + tokens_out) FROM calls GROUP BY role"
            )
        }
        return Practised(
            [_keys(store.read(libraries.load, row.library_out)) for row in report.steps],
            rows("SELECT sum(reward), count(*) FROM v_rollouts GROUP BY step, slot"),
            [text for (text,) in rows("SELECT text FROM operations WHERE source = 'propose'")],
            used.get("teacher", (0, 0)),
            used["student"][1],
        )


def _keys(library: Library) -> list[str]:
    return keys_in(render_library(library))


def paired(differences: Sequence[float]) -> tuple[float, float]:
    """Return their mean, and its standard error."""
    return fmean(differences), stdev(differences) / sqrt(len(differences))


def _gain(outcomes: Sequence[Outcome]) -> float:
    return fmean(outcome.gains[-1] for outcome in outcomes)


def _error(outcomes: Sequence[Outcome]) -> float:
    """Return the standard error of the mean gain."""
    return paired([outcome.gains[-1] for outcome in outcomes])[1]


def _each(counted: Iterable[Counter[str]]) -> str:
    counts = list(counted)
    kinds = sorted(set().union(*counts))
    means = (f"{fmean(count[kind] for count in counts):.1f} {kind}" for kind in kinds)
    return ", ".join(means) or "nothing"
