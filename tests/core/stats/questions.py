"""Questions with given rewards."""

from collections.abc import Sequence

import numpy as np

from grpo_practice.core.stats import Question


def tally(*rewards: Sequence[float | None], clusters: str = "") -> list[Question]:
    """One question per list; `clusters` has one letter for each."""
    questions = []
    for i, row in enumerate(rewards):
        seen = [r for r in row if r is not None]
        counts = (len(seen), sum(r == 1 for r in seen), sum(seen), sum(r * r for r in seen))
        cluster = clusters[i] if clusters else None
        questions.append(Question(str(i), *counts, planned=len(row), cluster=cluster))
    return questions


def binary(means: np.ndarray, k: int) -> list[Question]:
    """Questions of which so many of k rollouts are right. Shape of `means`: [n]."""
    return [
        Question(str(i), n=k, c=int(c), total=float(c), total_sq=float(c), planned=k)
        for i, c in enumerate(means)
    ]
