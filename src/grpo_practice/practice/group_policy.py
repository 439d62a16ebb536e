"""Policies that decide which groups of a step may begin early and which are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Protocol

from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.core.hashing import derive_seed
from grpo_practice.core.types import MeanOver, Sample
from grpo_practice.store import Store
from grpo_practice.store.records import Branch, StepRow
from grpo_practice.store.steps import uniform_before

REPLAY_CHANCE = 0.5
"""Probability that a group that may be left out is played nevertheless."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The groups of a step to play, and the weight of each in a mean."""

    left_out: frozenset[int] | None = None
    """Slots that are not played; None with a policy that plays all groups."""
    weights: Mapping[int, float] = field(default_factory=dict)
    """Slot → weight of the group's reward in a mean; 1 for slots that are absent."""


class GroupPolicy(Protocol):
    """Chooses among the groups of a step.

    All decisions depend only on the plan and on closed steps, so that a resumed or restarted run
    makes the same decisions.
    """

    @property
    def mean_over(self) -> MeanOver:
        """Set of rollouts that a mean reward covers."""
        ...

    def early(self, groups: int) -> int:
        """Return how many of a step's groups are played with the library of the previous step."""
        ...

    def select(
        self, store: Store, branch: Branch, row: StepRow, samples: Sequence[Sample]
    ) -> Selection:
        """Choose the groups of a step that is about to open; `samples` has one sample per slot."""
        ...

    def most_left_out(self, groups: int) -> float:
        """Return the most groups, out of `groups`, that may be left out, for a forecast."""
        ...


@dataclass(frozen=True, slots=True)
class AllGroups:
    """Plays every group, the first ones early if `overlap` is set."""

    overlap: float = 0.0
    """Share of a step's groups that may be played while the previous step is being finished."""
    mean_over: MeanOver = "all"

    def early(self, groups: int) -> int:
        """Return how many of a step's groups are played with the library of the previous step."""
        # 0.29 * 100 is 28.999…: without the small addition, a group would be lost.
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
    """Leaves out half of the questions whose last group, in an earlier epoch, had equal scores."""

    run_seed: int
    mean_over: MeanOver = "weighted"

    def early(self, groups: int) -> int:
        """Return 0: the groups to leave out are not known until the previous step is closed."""
        return 0

    def select(
        self, store: Store, branch: Branch, row: StepRow, samples: Sequence[Sample]
    ) -> Selection:
        """Draw the groups to leave out, unless the step has already stored a draw."""
        taught_nothing = store.read(uniform_before, branch, row.plan)
        slots = [slot for slot, sample in enumerate(samples) if sample.id in taught_nothing]
        left_out = row.left_out
        # Keep a stored draw: another one would leave out groups that are already played.
        if left_out is None:
            left_out = frozenset(s for s in slots if not self._again(samples[s], row.plan.epoch))
        # A question that is played also represents those left out; without the weight, the
        # choice would shift the mean.
        return Selection(left_out, dict.fromkeys(slots, 1 / REPLAY_CHANCE))

    def most_left_out(self, groups: int) -> float:
        """Return the mean of the draw plus two standard errors, in case all groups qualify."""
        spread = sqrt(REPLAY_CHANCE * (1 - REPLAY_CHANCE) * groups)
        return min((1 - REPLAY_CHANCE) * groups + 2 * spread, groups)

    def _again(self, sample: Sample, epoch: int) -> bool:
        # Like a request's seed, the draw depends on nothing that a restart changes.
        return derive_seed(self.run_seed, "skip", sample.sha, epoch, 0, 0) < REPLAY_CHANCE * 2**31


def group_policy(settings: PracticeSettings) -> GroupPolicy:
    """Return the policy that the settings name."""
    match settings.group_policy:
        case "fixed":
            return AllGroups(settings.overlap)
        case "skip_uniform":
            return SkipUniform(settings.seed)
