"""Decides which groups of a step may begin early and which are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

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


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """Chooses among the groups of a step, as `practice.group_policy` says.

    `fixed` plays every group, the first ones early if `overlap` is set. `skip_uniform` leaves out
    half of the questions whose last group, in an earlier epoch, had equal scores.

    All decisions depend only on the plan and on closed steps, so that a resumed or restarted run
    makes the same decisions.
    """

    settings: PracticeSettings

    @property
    def skips(self) -> bool:
        """Whether groups may be left out."""
        return self.settings.group_policy == "skip_uniform"

    @property
    def mean_over(self) -> MeanOver:
        """Set of rollouts that a mean reward covers."""
        return "weighted" if self.skips else "all"

    def early(self, groups: int) -> int:
        """Return how many of a step's groups are played with the library of the previous step."""
        # The config refuses an overlap with `skip_uniform`, because the groups to leave out are not
        # known until the previous step is closed. 0.29 * 100 is 28.999…: without the small
        # addition, a group would be lost.
        return int(self.settings.overlap * groups + 1e-9)

    def select(
        self, store: Store, branch: Branch, row: StepRow, samples: Sequence[Sample]
    ) -> Selection:
        """Choose the groups of a step that is about to open; `samples` has one sample per slot."""
        if not self.skips:
            return Selection()
        taught_nothing = store.read(uniform_before, branch, row.plan)
        slots = [slot for slot, sample in enumerate(samples) if sample.id in taught_nothing]
        left_out = row.left_out
        # Keep a stored draw, because another one would leave out groups that are already played.
        if left_out is None:
            left_out = frozenset(s for s in slots if not self._again(samples[s], row.plan.epoch))
        # A question that is played also represents those left out; without the weight, the
        # choice would shift the mean.
        return Selection(left_out, dict.fromkeys(slots, 1 / REPLAY_CHANCE))

    def most_left_out(self, groups: int) -> float:
        """Return the most groups, out of `groups`, that may be left out, for a forecast.

        This is the mean of the draw plus two standard errors, in case all groups qualify.
        """
        if not self.skips:
            return 0.0
        spread = sqrt(REPLAY_CHANCE * (1 - REPLAY_CHANCE) * groups)
        return min((1 - REPLAY_CHANCE) * groups + 2 * spread, groups)

    def _again(self, sample: Sample, epoch: int) -> bool:
        # Like a request's seed, the draw depends on nothing that a restart changes.
        seed = derive_seed(self.settings.seed, "skip", sample.sha, epoch, 0, 0)
        return seed < REPLAY_CHANCE * 2**31
