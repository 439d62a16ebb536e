"""Single rewards and the rewards of a group: correctness and advantages."""

import math
from collections.abc import Sequence

EPSILON = 1e-4
"""Constant added to the standard deviation, as published."""


def correct(reward: float) -> bool:
    """Return True if the reward is full marks, up to rounding."""
    return reward >= 1 - 1e-9


def mean(values: Sequence[float]) -> float:
    """Return the mean of one or more values, computed from their exact sum."""
    return math.fsum(values) / len(values)  # `statistics` imports ten modules for it


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return (r_i - mean) / (std + 1e-4), std with ddof = 1; exactly 0 if all rewards are equal.

    Shape: [G] to [G]. Source: Training-Free GRPO (arXiv:2510.08191), group-relative advantage.
    """
    # Compare exactly: rounding in the mean would leave tiny advantages.
    if not rewards or max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    middle = mean(rewards)
    squares = math.fsum((r - middle) ** 2 for r in rewards)
    std = math.sqrt(squares / (len(rewards) - 1))
    return [(r - middle) / (std + EPSILON) for r in rewards]
