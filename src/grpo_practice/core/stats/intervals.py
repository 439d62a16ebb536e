"""Intervals for the population of questions: they account for the random choice of questions.

Repeats of one question are not independent, so questions (or whole clusters of them) are
resampled, never the rollouts of a question, which would bias Pass@k.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from grpo_practice.core.stats.distributions import beta_point, t_point

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 4_000
TAIL = 0.025
"""Probability left out at each end of a 95 % interval."""

Method = Literal["none", "t", "bootstrap-t", "clopper-pearson"]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """Uncertainty of a mean over clusters of questions."""

    se: float | None = None
    """Cluster-robust standard error; None below two clusters."""
    ci95: Interval | None = None
    method: Method = "none"


def spread_of(clusters: Sequence[Sequence[float]], mean: float | None) -> Spread:
    """Return the uncertainty of `mean` as an estimate for all questions like these.

    `clusters` has the mean rewards of each cluster's questions; `mean` is None if it is empty.
    """
    size = len(clusters)
    if mean is None or size < 2:
        return Spread()
    # A cluster's deviation is the sum over its questions, so repeating one adds no certainty.
    deviations = [math.fsum(x - mean for x in xs) for xs in clusters]
    squares = math.fsum(d * d for d in deviations)
    se = math.sqrt(squares * size / (size - 1)) / sum(map(len, clusters))
    # All clusters agree, so t would give an interval of zero width.
    if se < 1e-9:
        return Spread(0.0, _clopper_pearson(mean, size), "clopper-pearson")
    method: Method = "t"
    if size >= 100 and 0.1 <= mean <= 0.9:
        high = t_point(TAIL, size - 1)
        low = -high
    else:  # t is too narrow for few clusters and for means near 0 or 1
        method = "bootstrap-t"
        alike = Counter(zip(deviations, map(len, clusters), strict=True))
        ends = _bootstrap_t(tuple(sorted(alike.items())))
        if ends is None:
            return Spread(se, _clopper_pearson(mean, size), "clopper-pearson")
        low, high = ends
    return Spread(se, (max(mean - high * se, 0.0), min(mean - low * se, 1.0)), method)


def _clopper_pearson(mean: float, size: int) -> Interval:
    """Return the exact binomial interval for `size * mean` successes in `size`.

    A mean of values in [0, 1] varies at most as much as that of zeros and ones, so for values in
    between the interval is too wide rather than too narrow.
    """
    c = size * mean
    low = 0.0 if c < 1e-6 else beta_point(TAIL, c, size - c + 1)
    high = 1.0 if size - c < 1e-6 else beta_point(1 - TAIL, c + 1, size - c)
    return low, high


@lru_cache(maxsize=16)  # Pass@1, pass^1 and the mean are often the same
def _bootstrap_t(alike: tuple[tuple[tuple[float, int], int], ...]) -> Interval | None:
    """Return the 2.5 % and 97.5 % points of (mean* - mean) / se* over resampled clusters.

    A resample whose questions all agree has no standard error and is left out. If such resamples
    are as many as a tail contains, that tail is unknown and the result is None.

    `alike` gives, for each pair of a cluster's summed deviation from the mean and its number of
    questions, how many clusters have that pair.
    """
    import numpy as np

    # Drawing how often each distinct pair occurs is equivalent to drawing clusters, and binary
    # rewards have only a few distinct pairs: 100,000 questions cost as much as 100.
    pairs = np.asarray([pair for pair, _ in alike], np.float64)
    times = np.asarray([n for _, n in alike])
    d, m = pairs[:, 0], pairs[:, 1]
    sums = np.column_stack([d, m, d * d, d * m, m * m])
    # A fixed seed, so that the same counts always give the same interval.
    rng = np.random.default_rng(0)
    chunk = max(1, 2_000_000 // len(pairs))  # limits the memory
    drawn = [
        rng.multinomial(times.sum(), times / times.sum(), min(chunk, RESAMPLES - i)) @ sums
        for i in range(0, RESAMPLES, chunk)
    ]
    t = _studentised(np.concatenate(drawn), int(times.sum()))
    if len(t) < RESAMPLES * (1 - TAIL):
        return None
    low, high = np.quantile(t, [TAIL, 1 - TAIL])
    return float(low), float(high)


def _studentised(sums: Floats, size: int) -> Floats:
    """Return the t of each resample that has one, from sums of d, m, d², dm, m². Shape: [≤ B]."""
    import numpy as np

    d, m, dd, dm, mm = sums.T
    shift = d / m
    squares = dd - 2 * shift * dm + shift**2 * mm
    usable = squares > 1e-9 * dd  # relative: the remainder after cancellation is rounding
    se = np.sqrt(squares[usable] * size / (size - 1)) / m[usable]
    return np.asarray(shift[usable] / se)
