"""Intervals for the population of questions: they account for the random choice of questions.

Repeats of one question are not independent, so questions (or whole clusters of them) are
resampled, never the rollouts of a question, which would bias Pass@k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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
    # A cluster's deviation is the sum over its questions: repeating one adds no certainty.
    deviations = [math.fsum(x - mean for x in xs) for xs in clusters]
    squares = math.fsum(d * d for d in deviations)
    se = math.sqrt(squares * size / (size - 1)) / sum(map(len, clusters))
    # All clusters agree, so t would give an interval of zero width.
    if se < 1e-9:
        return Spread(0.0, _clopper_pearson(mean, size), "clopper-pearson")
    method: Method = "t"
    low, high = -_t(size), _t(size)
    # t is too narrow for few clusters and for means near 0 or 1.
    if size < 100 or not 0.1 <= mean <= 0.9:
        ends = _bootstrap_t(deviations, [len(xs) for xs in clusters])
        if ends is None:
            return Spread(se, _clopper_pearson(mean, size), "clopper-pearson")
        method = "bootstrap-t"
        low, high = ends
    return Spread(se, (max(mean - high * se, 0.0), min(mean - low * se, 1.0)), method)


def _t(size: int) -> float:
    """Return the upper 2.5 % point of t for this many clusters."""
    from scipy import special

    return float(special.stdtrit(size - 1, 1 - TAIL))


def _clopper_pearson(mean: float, size: int) -> Interval:
    """Return the exact binomial interval for `size * mean` successes in `size`.

    A mean of values in [0, 1] varies at most as much as that of zeros and ones, so for values in
    between the interval is too wide rather than too narrow.
    """
    from scipy import special

    c = size * mean
    low = 0.0 if c < 1e-6 else float(special.betaincinv(c, size - c + 1, TAIL))
    high = 1.0 if size - c < 1e-6 else float(special.betaincinv(c + 1, size - c, 1 - TAIL))
    return low, high


def _bootstrap_t(deviations: Sequence[float], sizes: Sequence[int]) -> Interval | None:
    """Return the 2.5 % and 97.5 % points of (mean* - mean) / se* over resampled clusters.

    A resample whose questions all agree has no standard error and is left out. If such resamples
    are as many as a tail contains, that tail is unknown and the result is None.

    `deviations` are each cluster's summed deviation from the mean, `sizes` its number of questions.
    Shapes: [C].
    """
    import numpy as np

    pairs = np.column_stack([deviations, sizes]).astype(np.float64)
    # Drawing how often each distinct pair occurs is equivalent to drawing clusters, and binary
    # rewards have only a few distinct pairs: 100,000 questions cost as much as 100.
    pairs, times = np.unique(pairs, axis=0, return_counts=True)
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
