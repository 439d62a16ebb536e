"""The difference that a planned evaluation could find, before it is paid for."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from grpo_practice.forecast.range import Range
from grpo_practice.reports.effects import measurement
from grpo_practice.reports.known_scores import evaluations_of
from grpo_practice.stats import Question
from grpo_practice.stats.effects import planned_se
from grpo_practice.stats.paired import FEWEST, FIRST, difference, effective_clusters
from grpo_practice.stats.power import (
    OMEGA,
    SIGMA2,
    Noise,
    detectable,
    omega2_between,
    sigma2_within,
)
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import EFFECT
from grpo_practice.store.run_names import eval_name
from grpo_practice.types import Library


@dataclass(frozen=True, slots=True)
class PlannedPower:
    """Smallest difference that a comparison with as large an evaluation finds in 4 cases of 5."""

    questions: int
    k: int
    """Rollouts for each question, in both evaluations."""
    finds: Range | None
    """The difference, as a share; None below 10 questions."""
    measured: bool
    """Whether it rests on earlier evaluations alone; else on what is usual, in part."""
    effective_clusters: float
    """Number of families of one size that would tell as much; `questions` where each is its own."""


def planned_power(
    store: Store,
    exp_id: str,
    questions: int,
    k: int,
    family_sizes: Sequence[int] = (),
    level: float = FIRST,
) -> PlannedPower:
    """Return the difference that so many questions find, by what the experiment has measured.

    The noise within a question comes from its evaluations, else 0.05 to 0.20; how much the true
    difference varies between questions from their differences to `EXP/eval`, else 0.05 to 0.15.
    Questions of a family differ like any others at best, and all of them alike at worst.

    Args:
        store: The database.
        exp_id: Experiment.
        questions: Questions that are asked.
        k: Rollouts for each.
        family_sizes: Questions of each family; empty where each is one of its own. Shape: [C].
        level: Chance of a verdict without a difference; see `Look.level`.
    """
    families = effective_clusters(family_sizes) if family_sizes else float(questions)
    known = _evaluations(store, exp_id)
    within = _within(known)
    sigma2 = within or SIGMA2
    omega2 = _between(known, eval_name(exp_id))
    measured = within is not None and omega2 is not None
    low, high = omega2 or (OMEGA[0] ** 2, OMEGA[1] ** 2)
    size = questions / families if families else 1.0
    least, most = (sigma2[0] / size, sigma2[1] / size)
    ends = (Noise(low / size, least, least), Noise(high, most, most))
    finds = Range(*(detectable(noise, round(families), k, k, level) for noise in ends))
    found = finds if finds.high < inf else None
    return PlannedPower(questions, k, found, measured, families)


@dataclass(frozen=True, slots=True)
class PlannedEffect:
    """Standard error that the effect of one experience will have."""

    se: Range
    """The standard error, as a share; the larger the more an effect differs between questions."""
    rollouts: int
    measured: bool
    """Whether it rests on earlier runs of the experiment alone; else on what is usual, in part."""


def planned_effect(
    store: Store, exp_id: str, library: Library, questions: int, k: int
) -> PlannedEffect:
    """Return how exactly these rollouts measure an effect.

    The plan rests on the experiment's latest measurement of experiences, else on its
    evaluations of the baseline and of this library. Their difference D on a question may be due to
    all experiences alike or to one alone: the variances of the m effects add up to between
    Var(D) / m and E(D²).
    If D is not known, effects may be the same for all questions, or as different as rewards from 0
    to 1 allow.
    """
    m, rollouts = len(library), questions * k
    if (before := _measured_effects(store, exp_id)) is not None:
        errors, planned = before
        # Noise and differences between questions change with k and m by different factors.
        scales = [
            planned_se(*part, m, questions, k) / planned_se(*part, *planned)
            for part in ((1, 0), (0, 1))
        ]
        se = Range(min(errors) * min(scales), max(errors) * max(scales))
        return PlannedEffect(se, rollouts, measured=True)
    known = _evaluations(store, exp_id)
    baseline = eval_name(exp_id)
    whole = _with_library(store, baseline, library)
    pair = {name: of for name, of in known.items() if name in (baseline, whole)}
    within, between = _within(known), _between(pair, baseline)
    sigma2, spread = within or SIGMA2, Range(0, 1)
    if between is not None and (moved := difference(pair[baseline], pair[str(whole)])) is not None:
        spread = Range(between[0] / m, between[1] + moved.mean**2)
    low, high = (
        planned_se(s2, of_all / m, m, questions, k)
        for s2, of_all in zip(sigma2, spread, strict=True)
    )
    most = planned_se(0, 1 / m, m, questions, k)
    measured = within is not None and between is not None
    return PlannedEffect(Range(low, min(high, most)), rollouts, measured)


def _with_library(store: Store, baseline: str, library: Library) -> str | None:
    """Return the evaluation of the baseline's agent with a library, if there is one."""
    run = store.read(runs.find, baseline)
    if run is None or run.head_branch is None:
        return None
    branch = store.read(branches.load, run.head_branch)
    return next((one.run for one in evaluations_of(store, branch, library)), None)


def _measured_effects(
    store: Store, exp_id: str
) -> tuple[Sequence[float], tuple[int, int, int]] | None:
    """Return the standard errors of the latest effects, then experiences, questions and k.

    None where the experiment has no complete measurement of experiences with enough questions.
    """
    for run in reversed(store.read(runs.all_runs)):
        if run.exp_id == exp_id and run.purpose == EFFECT and run.steps == run.steps_closed > 0:
            found = measurement(store, run.name)
            errors = [one.se for one in found.experiences if one.se is not None]
            if errors and found.enough:
                return errors, (len(found.library), found.questions, found.k)
    return None


def _within(known: dict[str, list[Question]]) -> tuple[float, float] | None:
    """Return the range of the variance within a question, where an evaluation tells it."""
    found = [s for of in known.values() if (s := sigma2_within(of)) is not None]
    return (min(found), max(found)) if found else None


def _evaluations(store: Store, exp_id: str) -> dict[str, list[Question]]:
    """Return the tallies of the experiment's evaluations that tell the noise within a question.

    An evaluation need not be complete: one that grows keeps what it has measured.
    """
    found = dict[str, list[Question]]()
    for run in store.read(runs.all_runs):
        if run.exp_id == exp_id and run.purpose in ("test", "rejudge"):
            tallies = store.read(scores.questions_of, run)
            if sum(q.n >= 2 for q in tallies) >= FEWEST:
                found[run.name] = tallies
    return found


def _between(known: dict[str, list[Question]], baseline: str) -> tuple[float, float] | None:
    """Return the widest range of the variance of true differences to the baseline."""
    before = {q.key: q for q in known.get(baseline, ())}
    ranges = list[tuple[float, float]]()
    for name, questions in known.items():
        pairs = [(before[q.key], q) for q in questions if q.key in before]
        if name != baseline and (found := omega2_between(pairs)) is not None:
            ranges.append(found)
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
