"""Smallest difference that a planned evaluation could detect, known before it costs anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from grpo_practice.core.stats import Question
from grpo_practice.core.stats.effects import planned_se
from grpo_practice.core.stats.paired import FEWEST, FIRST, difference, effective_clusters
from grpo_practice.core.stats.power import (
    OMEGA,
    SIGMA2,
    Noise,
    detectable,
    omega2_between,
    sigma2_within,
)
from grpo_practice.core.types import Library
from grpo_practice.reports.known_scores import evaluations_of
from grpo_practice.run.forecast.range import Range
from grpo_practice.store import Store
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import EFFECT
from grpo_practice.store.run_names import eval_name


@dataclass(frozen=True, slots=True)
class PlannedPower:
    """Smallest difference that two evaluations of this size detect with 80 % power."""

    questions: int
    k: int
    """Number of rollouts per question in each of the two evaluations."""
    finds: Range | None
    """Detectable difference, as a share; None with fewer than 10 questions."""
    measured: bool
    """Whether the estimate relies only on earlier evaluations, and not on typical values."""
    effective_clusters: float
    """Number of equally large families that would give the same power; `questions` if there are no
    families.
    """


def planned_power(
    store: Store,
    exp_id: str,
    questions: int,
    k: int,
    family_sizes: Sequence[int] = (),
    level: float = FIRST,
) -> PlannedPower:
    """Return the detectable difference, based on the experiment's earlier evaluations.

    The noise within a question is taken from the experiment's evaluations, or assumed as 0.05 to
    0.20. The variation of the true difference between questions is taken from their differences to
    `EXP/eval`, or assumed as 0.05 to 0.15. At best, the differences of questions in one family vary
    as much as any others; at worst, they are all equal.

    Args:
        store: The database.
        exp_id: Experiment.
        questions: Number of questions to play.
        k: Rollouts per question.
        family_sizes: Number of questions in each family; empty if each question is its own family.
            Shape: [C].
        level: Probability of a verdict without a true difference; see `Look.level`.
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
    """Expected standard error of an experience's effect."""

    se: Range
    """Standard error, as a share; it grows with the variation of the effect between questions."""
    rollouts: int
    measured: bool
    """Whether the estimate relies only on earlier runs, and not on typical values."""


def planned_effect(
    store: Store, exp_id: str, library: Library, questions: int, k: int
) -> PlannedEffect:
    """Return the precision with which these rollouts measure an effect.

    The estimate uses the experiment's latest effect measurement; without one, it uses the
    evaluations of the baseline and of this library. Their difference D on a question may be caused
    by all experiences equally or by a single one, so the variances of the m effects add up to
    between Var(D) / m and E(D²). If D is unknown, effects may be equal for all questions, or vary
    as much as rewards from 0 to 1 allow.
    """
    m, rollouts = len(library), questions * k
    if (before := _measured_effects(store, exp_id)) is not None:
        errors, planned = before
        # Noise and variation between questions scale differently with k and m, and their shares
        # in the earlier errors are unknown, so the range covers both scales.
        scales = [
            planned_se(*part, m, questions, k) / planned_se(*part, *planned)
            for part in ((1, 0), (0, 1))
        ]
        se = Range(min(errors) * min(scales), max(errors) * max(scales))
        return PlannedEffect(se, rollouts, measured=True)
    known = _evaluations(store, exp_id)
    baseline = eval_name(exp_id)
    branch = store.read(runs.newest_branch, baseline)
    full = evaluations_of(store, branch, library) if branch else []
    whole = full[0].run if full else None
    pair = {name: of for name, of in known.items() if name in (baseline, whole)}
    within, between = _within(known), _between(pair, baseline)
    sigma2, spread = within or SIGMA2, Range(0, 1)
    if between is not None and (moved := difference(pair[baseline], pair[str(whole)])) is not None:
        spread = Range(between[0] / m, between[1] + moved.mean**2)
    low, high = (
        planned_se(s2, of_all / m, m, questions, k)
        for s2, of_all in zip(sigma2, spread, strict=True)
    )
    # Rewards are between 0 and 1, so effects cannot vary more than this.
    most = planned_se(0, 1 / m, m, questions, k)
    measured = within is not None and between is not None
    return PlannedEffect(Range(low, min(high, most)), rollouts, measured)


def _measured_effects(
    store: Store, exp_id: str
) -> tuple[Sequence[float], tuple[int, int, int]] | None:
    """Return the latest standard errors of effects, with numbers of experiences, questions and k.

    Returns None if the experiment has no complete effect measurement with enough questions.
    """
    from grpo_practice.reports.effects import measurement

    for run in reversed(store.read(runs.all_runs)):
        if run.exp_id == exp_id and run.purpose == EFFECT and run.steps == run.steps_closed > 0:
            found = measurement(store, run.name)
            errors = [one.se for one in found.experiences if one.se is not None]
            if errors and found.enough:
                return errors, (len(found.library), found.questions, found.k)
    return None


def _within(known: dict[str, list[Question]]) -> tuple[float, float] | None:
    """Return the range of the variance within a question; None if it was not measured."""
    found = [s for of in known.values() if (s := sigma2_within(of)) is not None]
    return (min(found), max(found)) if found else None


def _evaluations(store: Store, exp_id: str) -> dict[str, list[Question]]:
    """Return the tallies of the experiment's evaluations that measure the noise within a question.

    Incomplete evaluations count as well, because a growing evaluation keeps its measurements.
    """
    found = dict[str, list[Question]]()
    for run in store.read(runs.all_runs):
        if run.exp_id == exp_id and run.purpose in ("test", "rejudge"):
            tallies = store.read(scores.questions_of, run)
            if sum(q.n >= 2 for q in tallies) >= FEWEST:
                found[run.name] = tallies
    return found


def _between(known: dict[str, list[Question]], baseline: str) -> tuple[float, float] | None:
    """Return the widest range of the variance of true differences from the baseline."""
    before = {q.key: q for q in known.get(baseline, ())}
    ranges = list[tuple[float, float]]()
    for name, questions in known.items():
        pairs = [(before[q.key], q) for q in questions if q.key in before]
        if name != baseline and (found := omega2_between(pairs)) is not None:
            ranges.append(found)
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
