"""Pure arithmetic on rewards: advantages, scores with valid intervals, Pass@k."""

from grpo_practice.core.stats.intervals import Interval, Method
from grpo_practice.core.stats.scores import (
    Question,
    Score,
    advantages,
    by_source,
    correct,
    pass_at_k,
    pass_hat_k,
    score,
)

__all__ = [
    "Interval",
    "Method",
    "Question",
    "Score",
    "advantages",
    "by_source",
    "correct",
    "pass_at_k",
    "pass_hat_k",
    "score",
]
