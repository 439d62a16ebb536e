"""Predicts how small a difference a comparison can detect, before it is paid for.

The squared standard error of a paired difference over n questions is (ω² + σ²_A / k_A + σ²_B / k_B)
/ n: the variation of the true difference between questions, and the noise of the rollouts within a
question. Questions in families are worth fewer than their number: pass the number of families, and
for k all rollouts of a family.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grpo_practice.core.stats.distributions import shifted_t_below, t_point
from grpo_practice.core.stats.intervals import TAIL
from grpo_practice.core.stats.paired import FEWEST, FIRST
from grpo_practice.core.stats.scores import Question

POWER = 0.8
"""Probability of finding a difference that exists."""
_POWER_POINT = 0.8416
"""Quantile of the normal distribution for this probability."""
SIGMA2 = (0.05, 0.20)
"""Range of the variance within a question, used if nothing was measured."""
OMEGA = (0.05, 0.15)
"""Range of the standard deviation of the true difference, used if no earlier pair was measured."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Variance components of a paired difference."""

    omega2: float
    """Variance of the true difference between questions."""
    sigma2_a: float
    """Mean variance within a question of the rewards of A."""
    sigma2_b: float

    def se(self, questions: int, k_a: int, k_b: int) -> float:
        """Return the standard error of the mean difference."""
        variance = self.omega2 + self.sigma2_a / k_a + self.sigma2_b / k_b
        return math.sqrt(variance / questions)


def detectable(noise: Noise, questions: int, k_a: int, k_b: int, level: float = FIRST) -> float:
    """Return the difference that a two-sided test detects with 80 % power.

    The test's power follows the noncentral t distribution. The result is inf below 10 questions,
    which get no verdict, and 2.90 standard errors for many questions in a first comparison. Without
    any noise, it is the smallest difference that the exact test distinguishes from 0.
    """
    if questions < FEWEST:
        return math.inf
    se = noise.se(questions, k_a, k_b)
    if not se:
        # Solves the p of `paired_t` without noise, 2 (1 + d)^-n = level, for d.
        return math.expm1(-math.log(level / 2) / questions)
    df = questions - 1
    limit = t_point(level / 2, df)
    shift = limit + _POWER_POINT
    for _ in range(6):  # Newton's method, which starts within a few percent of the solution
        below, slope = shifted_t_below(limit, df, shift)
        shift -= (below - (1 - POWER)) / slope
    return shift * se


def power_of(noise: Noise, difference: float, questions: int, k_a: int, k_b: int) -> float:
    """Return the probability that a first comparison finds this difference.

    The result is 0 below 10 questions, which get no verdict.
    """
    if questions < FEWEST:
        return 0.0
    se = noise.se(questions, k_a, k_b)
    if not se:
        return float(abs(difference) > detectable(noise, questions, k_a, k_b))
    df, shift = questions - 1, abs(difference) / se
    limit = t_point(FIRST / 2, df)
    ends = (shifted_t_below(end, df, shift)[0] for end in (limit, -limit))
    return 1 - next(ends) + next(ends)


def questions_to_find(
    noise: Noise, difference: float, k_a: int, k_b: int, level: float = FIRST
) -> int:
    """Return the fewest questions with which this difference is found with 80 % power.

    Args:
        noise: Variance components.
        difference: Size of the difference, above 0.
        k_a: Rollouts per question in A.
        k_b: Rollouts per question in B.
        level: Probability of a verdict without a difference.

    Raises:
        ValueError: The difference is not above 0.
    """
    if not difference > 0:
        raise ValueError("the difference to find must be above 0")
    # The detectable difference falls with the questions, so bisection finds the fewest.
    low, high = FEWEST - 1, FEWEST
    while detectable(noise, high, k_a, k_b, level) > difference:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if detectable(noise, middle, k_a, k_b, level) > difference:
            low = middle
        else:
            high = middle
    return high


def sigma2_within(questions: Iterable[Question]) -> float | None:
    """Return the mean variance within a question; None if no question has two scored rollouts."""
    found = [q.variance for q in questions if q.n >= 2]
    return math.fsum(found) / len(found) if found else None


def omega2_between(pairs: Sequence[tuple[Question, Question]]) -> tuple[float, float] | None:
    """Return a 95 % interval, approximately, of the true difference's variance between questions.

    The variance is estimated by moments, at least 0, with a chi-square interval for the observed
    one. A point estimate would mislead: with 100 questions of 4 rollouts it is 0 in a third of the
    pairs with a true value of 0.01, and a power of 80 % planned with it is really 43 %. None if
    fewer than two questions have two scored rollouts in both arms.
    """
    usable = [(a, b) for a, b in pairs if a.n >= 2 and b.n >= 2]
    if len(usable) < 2:
        return None
    from scipy import special

    by, df = [b.mean - a.mean for a, b in usable], len(usable) - 1
    mean = math.fsum(by) / len(by)
    squares = math.fsum((d - mean) ** 2 for d in by)
    noise = math.fsum(a.variance / a.n + b.variance / b.n for a, b in usable) / len(usable)
    # chdtri takes the upper tail, so the smaller share gives the larger divisor.
    low, high = (
        max(squares / float(special.chdtri(df, tail)) - noise, 0) for tail in (TAIL, 1 - TAIL)
    )
    return low, high
