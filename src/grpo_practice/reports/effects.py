"""The effect of each experience of a library, measured by a run of purpose `effect`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.stats import Question
from grpo_practice.core.stats.effects import HARMFUL, Effects, effects_in_each_case
from grpo_practice.core.stats.paired import FEWEST, Difference, difference
from grpo_practice.core.text import count
from grpo_practice.core.types import Experience, Library
from grpo_practice.reports.base import Report
from grpo_practice.reports.conclusion import points
from grpo_practice.store import Store, branches, datasets, libraries
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.queries.arms import part_rollouts
from grpo_practice.store.records import Branch


@dataclass(frozen=True, slots=True)
class ExperienceEffect:
    """Effect of one experience, as a share, when about half of the other experiences are shown."""

    in_document: ClassVar = (
        *("experience.id", "experience.text"),
        *("effect", "se", "ci95", "p_harm", "expected", "failed", "bounds", "supported"),
    )

    experience: Experience
    effect: float | None
    """Mean reward with the experience minus mean reward without it; None if not identifiable."""
    se: float | None
    ci95: tuple[float, float] | None
    """95 % interval for this effect alone."""
    p_harm: float | None
    """Probability that the experience is harmful, given the effects of the others."""
    expected: float | None
    """Posterior mean of the effect, given the other effects; usually closer to 0 than `effect`."""
    failed: tuple[float, float] = (0.0, 0.0)
    """Share of failed rollouts with the experience, and share without it."""
    bounds: Sequence["ExperienceEffect"] = ()
    """The same effect with failed rollouts counted as 0 and as 1; empty if none failed."""

    @property
    def sign(self) -> int:
        """1 or -1 if the interval excludes 0, else 0."""
        low, high = self.ci95 or (0.0, 0.0)
        return (low > 0) - (high < 0)

    @property
    def supported(self) -> bool:
        """False if the interval excludes 0 only while failed rollouts are left out."""
        return not self.sign or all(one.sign == self.sign for one in self.bounds)

    @property
    def harmful(self) -> bool:
        """True if the experience is probably harmful, however failed rollouts are counted."""
        return all((one.p_harm or 0) > HARMFUL for one in (self, *self.bounds))


@dataclass(frozen=True, slots=True)
class Measurement:
    """Effects of the experiences of a library, and the data behind them."""

    run: str
    exp_id: str
    library: Library
    dataset: str
    experiences: Sequence[ExperienceEffect]
    """Effects of the experiences, in the library's order."""
    total: tuple[float, float] | None
    """Sum of the effects, with its standard error; None if not identifiable."""
    questions: int
    """Number of questions asked."""
    left_out: int
    """Number of questions that were not asked, because they were practised or unscorable."""
    k: int
    """Number of rollouts planned for each question."""
    planned: int
    scored: int
    clusters: int
    effective_clusters: float
    simulated: bool

    @property
    def enough(self) -> bool:
        """True if there are enough questions for valid intervals and probabilities."""
        return round(self.effective_clusters) >= FEWEST


def measurement(store: Store, name: str) -> Measurement:
    """Return the measurement of a run of purpose `effect`.

    Raises:
        ConfigError: The run does not exist or is not complete.
    """
    run = store.read(runs.get, name)
    if run.head_branch is None or run.steps_closed < run.steps or not run.steps:
        raise ConfigError(
            f"{name} is not complete: {run.steps_closed} of {run.steps} steps are closed",
            hint=store.read(runs.last_command, name) or "grpo-practice experiences effect",
        )
    branch = store.read(branches.load, run.head_branch)
    asked = store.read(scores.questions, branch)
    library = store.read(libraries.load, branch.library.id)
    found, experiences = _effects(store, branch, library, asked)
    dataset = store.read(datasets.by_id, branch.dataset_id)
    return Measurement(
        run=name,
        exp_id=run.exp_id,
        library=library,
        dataset=dataset.name,
        experiences=experiences,
        # NaN if any effect is not identifiable.
        total=None if math.isnan(found.total) else (found.total, found.total_se),
        questions=sum(not q.unscorable for q in asked),
        left_out=sum(q.unscorable for q in asked),
        k=max((q.planned for q in asked), default=0),
        planned=sum(q.planned for q in asked),
        scored=sum(q.n for q in asked),
        clusters=found.clusters,
        effective_clusters=found.effective_clusters,
        simulated=run.simulated,
    )


def _effects(
    store: Store, branch: Branch, library: Library, asked: Sequence[Question]
) -> tuple[Effects, list[ExperienceEffect]]:
    """Return the effects over scored rollouts, and the full statistics for each experience."""
    # Imported here, because most commands that read reports do not need NumPy, which is slow to
    # start.
    import numpy as np

    names = dict[tuple[bool, str], int]()  # families as numbers, by which NumPy can group
    family = {q.key: names.setdefault(q.cluster_name, len(names)) for q in asked}
    parts, ids = store.read(part_rollouts, branch), [e.id for e in library.experiences]
    shown = np.array([[id_ not in part.left_out for id_ in ids] for part in parts], np.bool_)
    # Without rollouts the array has one dimension only.
    shown = shown.reshape(len(parts), len(ids))
    rewards = np.array([part.reward for part in parts], np.float64)  # None becomes NaN
    cases = effects_in_each_case(
        rewards,
        shown,
        np.array([part.sample for part in parts], np.int64),
        np.array([family[str(part.sample)] for part in parts], np.int64),
    )
    failed, experiences = np.isnan(rewards), list[ExperienceEffect]()
    for j, e in enumerate(library.experiences):
        one, *bounds = (_of_one(case, j, e) for case in cases)
        with_it, without = (
            float(failed[has].mean()) if has.any() else 0.0 for has in (shown[:, j], ~shown[:, j])
        )
        experiences.append(replace(one, failed=(with_it, without), bounds=bounds))
    return cases[0], experiences


def _of_one(found: Effects, j: int, experience: Experience) -> ExperienceEffect:
    if not found.known[j]:
        return ExperienceEffect(experience, None, None, None, None, None)
    return ExperienceEffect(
        experience,
        float(found.effect[j]),
        float(found.se[j]),
        (float(found.low[j]), float(found.high[j])),
        float(found.p_harm[j]),
        float(found.expected[j]),
    )


@dataclass(frozen=True, slots=True, repr=False)
class EffectsReport(Report):
    """Effects of the experiences of a library, next to the effect of the whole library."""

    schema: ClassVar = "grpo-practice.effects/1"
    in_document: ClassVar = (
        *("found.run", "found.simulated", "found.library", "found.dataset", "found.questions"),
        *("found.left_out", "found.k", "found.planned", "found.scored", "found.clusters"),
        *("found.effective_clusters", "found.enough", "found.experiences", "found.total"),
        *("whole", "none", "measured", "notes"),
    )

    found: Measurement
    whole: str
    """Evaluation of the whole library on the same questions."""
    none: str
    """Evaluation without a library."""
    measured: Difference | None
    """Score with the whole library minus score without it; None if they share no question."""

    @property
    @override
    def next_command(self) -> str:
        """Command that removes harmful experiences, or evaluates the whole library."""
        found = self.found
        if any(one.harmful for one in found.experiences):
            return f"grpo-practice experiences prune --run L{found.library.id}"
        return f"grpo-practice eval --run {quote(found.exp_id)} --arms none,full"

    @property
    def notes(self) -> list[str]:
        """Sentences about the reliability of the numbers."""
        found, notes = self.found, list[str]()
        if not found.enough:
            notes.append(
                f"too few questions: {count(found.questions, 'question')}, but reliable intervals"
                f" need {FEWEST}"
            )
        elif found.effective_clusters < len(found.library):
            notes.append(
                "with fewer questions than experiences, about one interval in ten misses the"
                " true effect"
            )
        unknown = [one.experience.id for one in found.experiences if one.effect is None]
        if unknown:
            notes.append(
                f"not identifiable from these rollouts: {', '.join(unknown)} (use more questions or"
                " a larger -k)"
            )
        if missing := found.planned - found.scored:
            notes.append(
                f"{count(missing, 'rollout')} failed: excluded from the effects above, and counted"
                " as 0 and as 1 next to them"
            )
        unsupported = [one.experience.id for one in found.experiences if not one.supported]
        if unsupported:
            notes.append(
                f"not supported (?): {', '.join(unsupported)}; counting failed rollouts as 0 or"
                " as 1 moves the interval onto 0 or across it"
            )
        if (of := self.measured) is not None and of.worst is not None and of.best is not None:
            ends = (points(case.mean, signed=True) for case in (of.worst, of.best))
            notes.append(
                f"{count(of.missing, 'rollout')} with or without the whole library failed:"
                f" in the worst and the best case, the scores differ by {' and '.join(ends)} points"
            )
        if found.left_out:
            notes.append(
                f"{count(found.left_out, 'question')} of {found.dataset} left out: practised on"
                " before, or unscorable"
            )
        return notes

    @property
    def sentence(self) -> str:
        """Gain of the whole library: the measured one, and the sum of the effects."""
        of, parts = self.measured, list[str]()
        if of is not None:
            ends = f"{points(of.ci95[0], signed=True)} to {points(of.ci95[1], signed=True)}"
            parts.append(f"measured {points(of.mean, signed=True)} points ({ends})")
        if self.found.total is not None:
            mean, se = self.found.total
            parts.append(f"the effects add up to {points(mean, signed=True)} ± {points(se)}")
        return f"the whole library compared with no library: {', '.join(parts) or 'unknown'}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each experience."""
        return [
            (f"effects of L{self.found.library.id}, measured by {self.found.run}",),
            *(
                (one.experience.id, "-" if one.effect is None else points(one.effect, signed=True))
                for one in self.found.experiences
            ),
            (self.sentence,),
        ]


def effects_report(store: Store, run: str, *, whole: str, none: str) -> EffectsReport:
    """Return the effects that a run measured, with the evaluations played alongside it."""
    found = measurement(store, run)
    asked = {q.key for q in _questions(store, run) if q.planned}
    one, other = ([q for q in _questions(store, name) if q.key in asked] for name in (none, whole))
    return EffectsReport(found, whole, none, difference(one, other))


def _questions(store: Store, name: str) -> list[Question]:
    head = store.read(runs.get, name).head_branch
    return store.read(scores.questions, store.read(branches.load, head)) if head else []
