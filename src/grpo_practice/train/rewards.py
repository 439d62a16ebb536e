"""Rewards as TRL is given them, so that its advantages are ours."""

import math
from collections.abc import Sequence

from grpo_practice.config.schema.train import TrainSettings

Rewards = Sequence[float | None]
"""Rewards of a group in attempt order; None where the verify function failed. Shape: [G]."""


def given_rewards(group: Rewards, scale: str) -> list[float | None]:
    """Return the rewards of a group less their mean; exactly 0 for all where all are equal.

    TRL subtracts the mean again, which changes nothing. In its single precision, equal rewards
    such as three times 0.1 would have advantages of up to 1.2e-3. With `scale_rewards: batch` the
    deviation is over all groups, and so the rewards are given as they are.

    Shape: [G] to [G]. A reward of None stays None: TRL leaves it out of the group.
    """
    known = [reward for reward in group if reward is not None]
    if scale == "batch" or not known:
        return list(group)
    if max(known) == min(known):
        return [None if reward is None else 0.0 for reward in group]
    mean = math.fsum(known) / len(known)
    return [None if reward is None else reward - mean for reward in group]


def is_uniform(group: Rewards) -> bool:
    """Return whether a group has fewer than two different rewards: it teaches nothing."""
    known = [reward for reward in group if reward is not None]
    return not known or max(known) == min(known)


def skips_uniform(settings: TrainSettings) -> bool:
    """Return whether groups of equal rewards are left out of the update.

    With a KL term they pull towards the base model, and with bnpo their tokens count in what the
    losses of a batch are divided by. A deviation over the batch is no concern: an advantage is 0
    wherever the reward is the group's mean.
    """
    return settings.skip_uniform and settings.beta == 0 and settings.loss != "bnpo"
