"""Prepare rewards so that TRL computes the same advantages as practice does."""

import math
from collections.abc import Sequence

from grpo_practice.config.schema.train import TrainSettings

Rewards = Sequence[float | None]
"""Rewards of a group in attempt order; None if the verify function failed. Shape: [G]."""


def given_rewards(group: Rewards, scale: str) -> list[float | None]:
    """Subtract the mean of a group from its rewards; equal rewards become exactly 0.

    TRL subtracts the mean again, which changes nothing. With TRL's single precision, equal rewards
    such as three times 0.1 would get advantages of up to 1.2e-3. With `scale_rewards: batch`, the
    deviation is computed over all groups, so the rewards are returned unchanged.

    Shape: [G] to [G]. A reward of None stays None, and TRL excludes it from the group.
    """
    known = [reward for reward in group if reward is not None]
    if scale == "batch" or not known:
        return list(group)
    if max(known) == min(known):
        return [None if reward is None else 0.0 for reward in group]
    # Use fsum, because a small deviation would scale up rounding errors.
    mean = math.fsum(known) / len(known)
    return [None if reward is None else reward - mean for reward in group]


def is_uniform(group: Rewards) -> bool:
    """Return whether a group has fewer than two different rewards and so teaches nothing."""
    known = [reward for reward in group if reward is not None]
    return not known or max(known) == min(known)


def skips_uniform(settings: TrainSettings) -> bool:
    """Return whether groups of equal rewards are excluded from the update.

    They must be included with a KL term, which pulls towards the base model, and with bnpo, whose
    denominator counts their tokens. A deviation computed over the batch allows exclusion: wherever
    the reward equals the group's mean, the advantage is 0.
    """
    return settings.skip_uniform and settings.beta == 0 and settings.loss != "bnpo"
