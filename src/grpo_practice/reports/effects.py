"""The effect of each experience of a library, as a run of role `effect` measured it."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from grpo_practice.errors import ConfigError
from grpo_practice.prompts.system import library_tokens
from grpo_practice.reports.base import Report
from grpo_practice.reports.comparison import points
from grpo_practice.stats import Question
from grpo_practice.stats.effects import HARMFUL
from grpo_practice.stats.paired import FEWEST, Difference, difference
from grpo_practice.store import Store, branches, datasets, libraries
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.queries.halves import scored_parts
from grpo_practice.store.records import Branch
from grpo_practice.text import count
from grpo_practice.types import Experience, Library

if TYPE_CHECKING:
    from grpo_practice.stats.effects import Effects


@dataclass(frozen=True, slots=True)
class ExperienceEffect:
    """Effect of one experience, where about half of the others are shown, as a share."""

    experience: Experience
    effect: float | None
    """Mean reward with it less mean reward without it; None where that is not told."""
    se: float | None
    ci95: tuple[float, float] | None
    """95 % interval of this effect alone."""
    p_harm: float | None
    """Probability that it does harm, given the effects of the others."""
    expected: float | None
    """Mean of the effect, given those of the others: smaller than `effect`, mostly."""

    def document(self) -> dict[str, Any]:
        """Return it as part of a document."""
        return {
            "id": self.experience.id,
            "text": self.experience.text,
            "effect": self.effect,
            "se": self.se,
            "ci95": list(self.ci95) if self.ci95 else None,
            "p_harm": self.p_harm,
            "expected": self.expected,
        }


@dataclass(frozen=True, slots=True)
class Measurement:
    """Effects of the experiences of a library, and what they rest on."""

    run: str
    exp_id: str
    library: Library
    dataset: str
    experiences: Sequence[ExperienceEffect]
    """In the library's order."""
    total: tuple[float, float] | None
    """Sum of the effects, with its standard error; None where that is not told."""
    questions: int
    """Questions that were asked."""
    left_out: int
    """Questions of the dataset that were not: practised on, or not to be scored."""
    k: int
    """Rollouts planned for a question."""
    planned: int
    scored: int
    clusters: int
    effective_clusters: float
    simulated: bool

    @property
    def enough(self) -> bool:
        """True when intervals and probabilities can be believed."""
        return round(self.effective_clusters) >= FEWEST

    def document(self) -> dict[str, Any]:
        """Return it as part of a document."""
        return {
            "run": self.run,
            "simulated": self.simulated,
            "library": f"L{self.library.id}",
            "dataset": self.dataset,
            "questions": self.questions,
            "left_out": self.left_out,
            "k": self.k,
            "rollouts": {"planned": self.planned, "scored": self.scored},
            "clusters": self.clusters,
            "effective_clusters": self.effective_clusters,
            "enough": self.enough,
            "experiences": [one.document() for one in self.experiences],
            "sum": None if self.total is None else {"mean": self.total[0], "se": self.total[1]},
        }


def measurement(store: Store, name: str) -> Measurement:
    """Return what a run of role `effect` measured.

    Raises:
        ConfigError: There is no such run, or it is not complete.
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
    found = _effects(store, branch, library, asked)
    dataset = store.read(datasets.by_id, branch.dataset_id)
    return Measurement(
        run=name,
        exp_id=run.exp_id,
        library=library,
        dataset=dataset.name,
        experiences=[_of_one(found, j, e) for j, e in enumerate(library.experiences)],
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
) -> "Effects":
    import numpy as np

    from grpo_practice.stats.effects import effects

    names = dict[tuple[bool, str], int]()
    family = {q.key: names.setdefault(q.cluster_name, len(names)) for q in asked}
    parts, ids = store.read(scored_parts, branch), [e.id for e in library.experiences]
    shown = [[id_ not in part.left_out for id_ in ids] for part in parts]
    return effects(
        np.array([part.reward for part in parts], np.float64),
        np.array(shown, np.bool_).reshape(len(parts), len(ids)),
        np.array([part.sample for part in parts], np.int64),
        np.array([family[str(part.sample)] for part in parts], np.int64),
    )


def _of_one(found: "Effects", j: int, experience: Experience) -> ExperienceEffect:
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
    """Effects of the experiences of a library, beside what the whole library does."""

    found: Measurement
    whole: str
    """Evaluation of the whole library on the same questions."""
    none: str
    """Evaluation without a library."""
    measured: Difference | None
    """Score with the whole library less score without; None without a common question."""

    @property
    def next_command(self) -> str:
        """Command to type now: what is likely to do harm is taken out, or the whole measured."""
        found = self.found
        if any((one.p_harm or 0) > HARMFUL for one in found.experiences):
            return f"grpo-practice experiences prune --run L{found.library.id}"
        return f"grpo-practice eval --run {quote(found.exp_id)} --arms none,full"

    @property
    def notes(self) -> list[str]:
        """Sentences on how far the numbers can be believed."""
        found, notes = self.found, list[str]()
        if not found.enough:
            notes.append(
                f"too few questions: {count(found.questions, 'question')}, and {FEWEST} are needed"
                " for intervals to hold"
            )
        elif found.effective_clusters < len(found.library):
            notes.append(
                "with fewer questions than experiences, about one interval in ten leaves out the"
                " true effect"
            )
        unknown = [one.experience.id for one in found.experiences if one.effect is None]
        if unknown:
            notes.append(
                f"not told apart by these rollouts: {', '.join(unknown)} (more questions, or a"
                " larger -k)"
            )
        if missing := found.planned - found.scored:
            notes.append(f"{count(missing, 'rollout')} without a reward are left out")
        if found.left_out:
            notes.append(
                f"{count(found.left_out, 'question')} of {found.dataset} left out: practised on, or"
                " not to be scored"
            )
        return notes

    @property
    def sentence(self) -> str:
        """Gain of the whole library, measured and as the effects sum up to."""
        of, parts = self.measured, list[str]()
        if of is not None:
            ends = f"{points(of.ci95[0], signed=True)} to {points(of.ci95[1], signed=True)}"
            parts.append(f"measured {points(of.mean, signed=True)} points ({ends})")
        if self.found.total is not None:
            mean, se = self.found.total
            parts.append(f"the effects sum up to {points(mean, signed=True)} ± {points(se)}")
        return f"the whole library less none: {', '.join(parts) or 'not known'}"

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.effects/1`."""
        of = self.measured
        return {
            "schema": "grpo-practice.effects/1",
            **self.found.document(),
            "full": self.whole,
            "none": self.none,
            "full_less_none": None
            if of is None
            else {
                "mean": of.mean,
                "se": of.se,
                "ci95": list(of.ci95),
                "p": of.p,
                "questions": len(of.questions),
            },
            "notes": self.notes,
            "next": self.next_command,
            "exit": 0,
        }

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
    """Return the effects that a run measured, beside the evaluations played with it."""
    found = measurement(store, run)
    asked = {q.key for q in _questions(store, run) if q.planned}
    one, other = ([q for q in _questions(store, name) if q.key in asked] for name in (none, whole))
    return EffectsReport(found, whole, none, difference(one, other))


def _questions(store: Store, name: str) -> list[Question]:
    head = store.read(runs.get, name).head_branch
    return store.read(scores.questions, store.read(branches.load, head)) if head else []


@dataclass(frozen=True, slots=True)
class Pruned:
    """An experience that was taken out."""

    of: ExperienceEffect
    reason: Literal["harm", "room"]
    """`harm`: it is likely to do some; `room`: others are worth more in so many tokens."""

    def document(self) -> dict[str, Any]:
        """Return it as part of a document."""
        return self.of.document() | {"reason": self.reason}


@dataclass(frozen=True, slots=True, repr=False)
class PruneReport(Report):
    """A library without some of its experiences; no gain is claimed, since none is measured."""

    run: str
    """Practice run of the library."""
    found: Measurement
    gone: Sequence[Pruned]
    library: Library | None
    """The new library; None where nothing is taken out, or nothing would be left."""

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of the library before and after, about."""
        return library_tokens(self.found.library), library_tokens(self.library or Library())

    @property
    def sentence(self) -> str:
        """Result in one sentence."""
        was = f"L{self.found.library.id}"
        if not self.gone:
            return f"{was} stays as it is: no experience is likely to do harm (P > {HARMFUL:g})"
        if self.library is None:
            return (
                f"all {count(len(self.gone), 'experience')} of {was} are likely to do harm"
                f" (P > {HARMFUL:g}): no library is made, since it would be empty"
            )
        before, after = self.tokens
        return (
            f"L{self.library.id} is {was} without"
            f" {', '.join(one.of.experience.id for one in self.gone)}:"
            f" {count(len(self.library), 'experience')}, {after:,} tokens in place of {before:,}"
        )

    @property
    def next_command(self) -> str:
        """Command to type now: only a comparison on other questions can tell a gain."""
        arms = "none,full" + (f",L{self.library.id}" if self.library else "")
        return f"grpo-practice eval --run {quote(self.run)} --arms {arms}"

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.prune/1`."""
        before, after = self.tokens
        return {
            "schema": "grpo-practice.prune/1",
            "run": self.run,
            "simulated": self.found.simulated,
            "measured_by": self.found.run,
            "before": f"L{self.found.library.id}",
            "library": f"L{self.library.id}" if self.library else None,
            "experiences": [asdict(e) | {"id": e.id} for e in self._left],
            "removed": [one.document() for one in self.gone],
            "tokens": {"before": before, "after": after if self.library else before},
            "sentence": self.sentence,
            "next": self.next_command,
            "exit": 0,
        }

    @property
    def _left(self) -> Sequence[Experience]:
        return (self.library or self.found.library).experiences

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return what was taken out."""
        return [
            (self.sentence,),
            *((one.of.experience.id, one.reason, one.of.experience.text) for one in self.gone),
        ]
