"""`train tune --population`: training runs that copy each other's weights.

Source: arXiv:1711.09846, truncation selection. The seed and the stored scores determine which
member copies whose weights, so the same command can resume a search at any point without a separate
record.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from grpo_practice.core.errors import ConfigError, RunFailedError
from grpo_practice.reports.training import scored_steps
from grpo_practice.run.session import Session
from grpo_practice.store import trained_steps
from grpo_practice.store.queries import runs
from grpo_practice.store.run_names import trial_name
from grpo_practice.train.job import TrainJob
from grpo_practice.train.requests import TuneRequest
from grpo_practice.train.resume import Origin
from grpo_practice.train.run import run_train
from grpo_practice.train.space import Space
from grpo_practice.train.tune_report import Phase, Trial, TuneReport, copied_from, settings_text
from grpo_practice.train.tuning import TuneJob, check_same_search, prepare_search, tested

TAKEN = 0.25
"""Share of the members that copy the weights of an equal number of the best members."""
RESAMPLED = 0.25
"""Probability of drawing a new value for a setting instead of changing the inherited value
slightly.
"""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a population, with the history of its current weights."""

    number: int
    run: str
    phases: Sequence[Phase]

    @property
    def values(self) -> Mapping[str, Any]:
        """Current settings of the member."""
        return self.phases[-1].values


def first_members(space: Space, names: Sequence[str], seed: int) -> list[Member]:
    """Return members with settings drawn from the space; `names` are the names of their runs."""
    members = list[Member]()
    for number, run in enumerate(names):
        # A generator per member, so that a larger population begins with the same members.
        rng = Random(f"{seed}|{number}")
        drawn = {key: part.sample(rng) for key, part in space.items()}
        members.append(Member(number, run, [Phase(0, run, drawn)]))
    return members


def next_members(
    members: Sequence[Member], scores: Mapping[int, float], step: int, space: Space, seed: int
) -> list[Member]:
    """Return the members that continue after a step; members without a score are dropped.

    Each member of the worst quarter copies the weights of one of the best members, with settings
    near that member's settings, unless that member's score is no better.
    """
    ranked = sorted(
        (member for member in members if member.number in scores),
        key=lambda member: (-scores[member.number], member.number),
    )
    # At most half, so that no member is among both the best and the worst.
    count = min(math.ceil(len(ranked) * TAKEN), len(ranked) // 2)
    worst = {member.number for member in ranked[len(ranked) - count :]}

    def after(member: Member) -> Member:
        rng = Random(f"{seed}|{member.number}|{step}")
        if member.number not in worst:
            return member
        best = rng.choice(ranked[:count])
        if scores[best.number] <= scores[member.number]:
            return member
        explored = {
            key: part.sample(rng) if rng.random() < RESAMPLED else part.near(best.values[key], rng)
            for key, part in space.items()
        }
        return replace(member, phases=[*best.phases, Phase(step, member.run, explored)])

    return sorted(map(after, ranked), key=lambda member: member.number)


_SHAPES = ("update_epochs", "lora")
"""Keys that determine the shape of weights and optimiser state; all members share their values."""


def prepare_population(session: Session, request: TuneRequest) -> TuneJob:
    """Return a search by a population; nothing is trained yet.

    Raises:
        ConfigError: As for `tuning.prepare_search`; or the members could not be compared during
            training, or could not copy each other's weights.
    """
    job = prepare_search(session, request, request.population)
    settings = job.settings
    if settings.steps is None or settings.eval_every is None:
        raise ConfigError(
            "a population needs train.steps and train.eval_every: its members train for"
            " the same number of steps, and are compared at intervals",
            hint="--set train.steps=100 --set train.eval_every=20",
        )
    if settings.scheduler != "constant":
        raise ConfigError(
            f"train.scheduler is {settings.scheduler}, but in a population the search sets the"
            " rate",
            hint="--set train.scheduler=constant",
        )
    fixed = [key for key in job.space if key.partition(".")[0] in _SHAPES]
    if fixed:
        raise ConfigError(
            f"train.tune.space.{fixed[0]} cannot vary in a population: weights cannot be taken"
            " over by a member with another value",
            hint="leave it out, or search by --trials",
        )
    space = json.dumps(dict(settings.tune.space), sort_keys=True)
    told = (
        f"a population of {job.count}, compared every {settings.eval_every} steps,"
        f" seed {settings.tune.seed}, space {space}"
    )
    job = replace(job, population=told)
    check_same_search(job)
    return job


async def run_population(job: TuneJob) -> TuneReport:
    """Train the members, compare them at intervals, and test the best member once.

    Raises:
        StoppedError: A signal stopped the current member after a step.
    """
    assert job.settings.steps is not None
    assert job.settings.eval_every is not None
    seed, steps = job.settings.tune.seed, job.settings.steps
    names = [trial_name(job.exp_id, number) for number in range(job.count)]
    everyone = {m.number: m for m in first_members(job.space, names, seed)}
    members: Sequence[Member] = list(everyone.values())
    # The last round may be shorter than the others.
    for end in [*range(job.settings.eval_every, steps, job.settings.eval_every), steps]:
        # Once a member has trained beyond this step, members without a score here are out.
        begun = [run for name in names if (run := job.session.store.read(runs.find, name))]
        under_way = all(run.steps_closed <= end for run in begun)
        found = _scores(job, members, end)
        for member in members if under_way else ():
            if member.number not in found:
                await _train(job, member, end)
        found = _scores(job, members, end)
        if not found or end == steps:
            break
        members = next_members(members, found, end, job.space, seed)
        changed = [member for member in members if member is not everyone[member.number]]
        for member in changed if under_way else ():
            job.session.notice(_told(member))
        everyone |= {member.number: member for member in changed}
    trials = [_trial(job, member, steps) for member in everyone.values()]
    return await tested(job, trials, lambda best: _job(job, everyone[best.number], steps))


def _told(member: Member) -> str:
    """Return a sentence about the weights that a member has just copied."""
    copied = copied_from(member.phases)
    assert copied is not None
    run, step = copied
    return (
        f"{member.run} takes over the weights of {run} after step {step}, with"
        f" {settings_text(member.values)}"
    )


def _scores(job: TuneJob, members: Sequence[Member], end: int) -> Mapping[int, float]:
    """Return member → mean reward of its weights after `end` steps, for members with a score."""
    by_member = {member.number: scored_steps(job.session.store, member.run) for member in members}
    return {number: found[end - 1] for number, found in by_member.items() if end - 1 in found}


async def _train(job: TuneJob, member: Member, end: int) -> None:
    """Train a member up to step `end`; a member whose training fails is dropped."""
    try:
        await run_train(_job(job, member, end))
    except RunFailedError as e:
        job.session.notice(f"{member.run} has dropped out: {e}")


def _job(job: TuneJob, member: Member, end: int) -> TrainJob:
    trained = job.trial(member.number, {**member.values, "steps": end})
    return replace(trained, population=job.population, origin=_origin(job, member))


def _origin(job: TuneJob, member: Member) -> Origin | None:
    """Return the checkpoint that a member last copied."""
    copied = copied_from(member.phases)
    if copied is None:
        return None
    (name, step), store = copied, job.session.store
    branch = store.read(runs.newest_branch, name)
    assert branch is not None, "a run whose weights were copied has begun"
    saved = {row.step: row for row in store.read(trained_steps.checkpoints, branch)}
    return Origin(name, saved[step])


def _trial(job: TuneJob, member: Member, steps: int) -> Trial:
    store, name = job.session.store, member.run
    run, found = store.read(runs.find, name), scored_steps(store, name)
    return Trial(
        number=member.number,
        run=name,
        state="complete" if steps - 1 in found else "failed",
        values=member.values,
        score=found[max(found)] if found else None,
        steps=run.steps_closed if run else 0,
        phases=member.phases,
    )
