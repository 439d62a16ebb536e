"""Group policies: which groups of a step may begin early, and which are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Protocol

from grpo_practice.canonical import derive_seed
from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.store import Store
from grpo_practice.store.records import Branch, StepRow
from grpo_practice.store.steps import uniform_before
from grpo_practice.types import MeanOver, Sample

AGAIN = 0.5
"""Chance that a group which may be left out is played all the same."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The groups of a step that are played, and how often each counts."""

    left_out: frozenset[int] | None = None
    """Slots that are not played; None under a policy that plays all."""
    weights: Mapping[int, float] = field(default_factory=dict)
    """Slot → how often its reward counts in a mean; 1 for any other."""


class GroupPolicy(Protocol):
    """How a run chooses among the groups of a step.

    All answers follow from the plan and from closed steps alone, so that a run that is
    resumed or restarted chooses the same.
    """

    @property
    def mean_over(self) -> MeanOver:
        """The rollouts that a mean reward is over, in words."""
        ...

    def early(self, groups: int) -> int:
        """Return how many of a step's groups are played with the library of the step before."""
        ...

    def select(
        self, store: Store, branch: Branch, row: StepRow, samples: Sequence[Sample]
    ) -> Selection:
        """Choose the groups of a step that opens; `samples` has one for each slot."""
        ...

    def most_left_out(self, groups: int) -> float:
        """Return how many of so many groups are left out, at most, for a forecast."""
        ...


@dataclass(frozen=True, slots=True)
class AllGroups:
    """Plays every group, the first ones early where that is wanted."""

    overlap: float = 0.0
    """Share of a step's groups that may be played while the step before is being finished."""
    mean_over: MeanOver = "all"

    def early(self, groups: int) -> int:
        """Return how many of a step's groups are played with the library of the step before."""
        # 0.29 * 100 is 28.999…: without the small addition a group would be lost.
        return int(self.overlap * groups + 1e-9)

    def select(
        self, store: Store, branch: Branch, row: StepRow, samples: Sequence[Sample]
    ) -> Selection:
        """Choose all groups."""
        return Selection()

    def most_left_out(self, groups: int) -> float:
        """Return 0."""
        return 0.0


@dataclass(frozen=True, slots=True)
class SkipUniform:
    """Leaves out half of the questions whose last group, in an earlier epoch, did not differ."""

    run_seed: int
    mean_over: MeanOver = "weighted"

    def early(self, groups: int) -> int:
        """Return 0: which groups are left out is known only when the step before is closed."""
        return 0

    def select(
        self, store: Store, branch: Branch, row: StepRow, samples: Sequence[Sample]
    ) -> Selection:
        """Draw the groups to leave out, unless the step has stored its draw already."""
        taught_nothing = store.read(uniform_before, branch, row.plan)
        slots = [slot for slot, sample in enumerate(samples) if sample.id in taught_nothing]
        left_out = row.left_out
        # What the step has drawn stays: another draw would leave out
        # groups that are played already.
        if left_out is None:
            left_out = frozenset(s for s in slots if not self._again(samples[s], row.plan.epoch))
        # Those that are played stand for those left out; unweighted, the
        # choice would shift the mean.
        return Selection(left_out, dict.fromkeys(slots, 1 / AGAIN))

    def most_left_out(self, groups: int) -> float:
        """Return two standard errors above the mean of the draw: any group might be in doubt."""
        spread = sqrt(AGAIN * (1 - AGAIN) * groups)
        return min((1 - AGAIN) * groups + 2 * spread, groups)

    def _again(self, sample: Sample, epoch: int) -> bool:
        # The draw depends on nothing that a restart changes, as the seed of a request does.
        return derive_seed(self.run_seed, "skip", sample.sha, epoch, 0, 0) < AGAIN * 2**31


def group_policy(settings: PracticeSettings) -> GroupPolicy:
    """Return the policy that the settings ask for."""
    match settings.group_policy:
        case "fixed":
            return AllGroups(settings.overlap)
        case "skip_uniform":
            return SkipUniform(settings.seed)
