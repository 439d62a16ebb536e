"""What rewards say: advantages, scores with honest intervals, Pass@k.

Pure arithmetic over counts per question. Intervals are about questions like these: repeats of one
question are not independent, so it is questions (or whole clusters of them) that vary, and that
are resampled; never the rollouts of a question, which would bias Pass@k.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

EPSILON = 1e-4
RESAMPLES = 4_000
TAIL = 0.025
"""Probability left out at each end of a 95 % interval."""

Method = Literal["none", "t", "bootstrap-t", "clopper-pearson"]
Interval = tuple[float, float]


def correct(reward: float) -> bool:
    """True when the reward is full marks, up to rounding."""
    return reward >= 1 - 1e-9


def advantages(rewards: Sequence[float]) -> list[float]:
    """A_i = (r_i - mean) / (std + 1e-4), std with ddof = 1; exactly 0 for all when all are equal.

    Shape: [G] to [G]. Source: Training-Free GRPO (arXiv:2510.08191), group-relative advantage.
    """
    if not rewards or max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    squares = math.fsum((r - mean) ** 2 for r in rewards)
    std = math.sqrt(squares / (len(rewards) - 1))
    return [(r - mean) / (std + EPSILON) for r in rewards]


@dataclass(frozen=True, slots=True)
class Question:
    """What is known of one question's rollouts, as counts."""

    key: str
    n: int = 0
    """Scored rollouts."""
    c: int = 0
    """Of these, correct."""
    total: float = 0.0
    """Sum of the rewards."""
    total_sq: float = 0.0
    """Sum of the squared rewards."""
    planned: int = 0
    """Rollouts that were to be played; those that failed are in here and not in `n`."""
    source: str = ""
    cluster: str | None = None
    """Questions that come in families share one; None means the question itself."""

    @property
    def mean(self) -> float:
        """Mean reward of the scored rollouts; `n` must not be 0."""
        return self.total / self.n

    @property
    def variance(self) -> float:
        """Unbiased variance of the rewards within the question; `n` must be 2 or more."""
        return max(self.total_sq - self.total * self.total / self.n, 0.0) / (self.n - 1)


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k): the chance that one of k of the n is correct. Needs n >= k."""
    return 1.0 - _all_from(n - c, n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """C(c, k) / C(n, k): the chance that all k of the n are correct. Needs n >= k."""
    return _all_from(c, n, k)


def _all_from(m: int, n: int, k: int) -> float:
    """C(m, k) / C(n, k), as a product, so that large n neither overflow nor cancel."""
    if m < k:
        return 0.0
    return math.prod((m - i) / (n - i) for i in range(k))


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one run, with what it rests on."""

    mean: float | None
    """Mean over the scored questions of their mean reward; None when nothing is scored."""
    se: float | None
    """Standard error for other questions like these; None below two clusters."""
    se_here: float | None
    """Standard error on exactly these questions (the noise of the rollouts alone); None unless
    every scored question has at least two."""
    ci95: Interval | None
    """In [0, 1], and never of zero width; None below two clusters, which say nothing of others."""
    method: Method
    """How `ci95` was made."""
    n_questions: int
    n_scored_questions: int
    """Questions with at least one reward; the others are missing, not wrong."""
    planned: int
    scored: int
    correct: int
    """Rollouts."""
    coverage: float
    """scored / planned; 0 when nothing was planned."""
    pass_at: dict[int, float]
    """Pass@j for j = 1, 2, 4, … and k, over the questions with at least j scored; a j that no
    question reaches is left out."""
    pass_hat: dict[int, float]
    """pass^j (all j correct), likewise."""
    questions_at_k: int
    """Questions with at least k scored."""


def score(questions: Iterable[Question], k: int) -> Score:
    """The score of these questions.

    Every scored question weighs the same, however many of its rollouts were scored. The standard
    error is the cluster-robust one, which is sd/√n when each question is its own cluster. The
    interval: t; for fewer than 100 clusters or a mean outside [0.1, 0.9], a studentised bootstrap
    over clusters (seeded, so the same counts give the same interval); where all scores are equal,
    or so nearly that the bootstrap has no tail to read, Clopper-Pearson on the number of clusters.

    Args:
        questions: One row per question; rows with `n = 0` only lower the coverage.
        k: Rollouts per question as configured; at least 1.
    """
    rows = list(questions)
    seen = [q for q in rows if q.n]
    planned, scored = sum(q.planned for q in rows), sum(q.n for q in rows)
    mean = math.fsum(q.mean for q in seen) / len(seen) if seen else None
    se, interval, method = _spread(seen, mean)
    return Score(
        mean=mean,
        se=se,
        se_here=_noise(seen),
        ci95=interval,
        method=method,
        n_questions=len(rows),
        n_scored_questions=len(seen),
        planned=planned,
        scored=scored,
        correct=sum(q.c for q in rows),
        coverage=scored / planned if planned else 0.0,
        pass_at=_over(seen, k, pass_at_k),
        pass_hat=_over(seen, k, pass_hat_k),
        questions_at_k=sum(q.n >= k for q in seen),
    )


def by_source(questions: Iterable[Question], k: int) -> dict[str, Score]:
    """`score` for each source apart, sources in alphabetical order."""
    parts: dict[str, list[Question]] = {}
    for q in questions:
        parts.setdefault(q.source, []).append(q)
    return {source: score(parts[source], k) for source in sorted(parts)}


def _over(
    seen: Sequence[Question], k: int, chance: Callable[[int, int, int], float]
) -> dict[int, float]:
    counts = Counter((q.n, q.c) for q in seen)  # few different ones, however many questions
    found = {}
    for j in sorted({2**i for i in range(k.bit_length())} | {k}):
        enough = [(n, c, times) for (n, c), times in counts.items() if n >= j]
        if enough:
            total = math.fsum(times * chance(n, c, j) for n, c, times in enough)
            found[j] = total / sum(times for _, _, times in enough)
    return found


def _noise(seen: Sequence[Question]) -> float | None:
    if not seen or min(q.n for q in seen) < 2:
        return None
    return math.sqrt(math.fsum(q.variance / q.n for q in seen)) / len(seen)


def _spread(
    seen: Sequence[Question], mean: float | None
) -> tuple[float | None, Interval | None, Method]:
    """Standard error, interval, and the interval's method."""
    clusters: dict[tuple[bool, str], list[float]] = {}
    for q in seen:
        name = (False, q.key) if q.cluster is None else (True, q.cluster)
        clusters.setdefault(name, []).append(q.mean)
    size = len(clusters)
    if mean is None or size < 2:
        return None, None, "none"
    # What each cluster adds to the deviation from the mean: the sum of its questions' own.
    deviations = [math.fsum(x - mean for x in xs) for xs in clusters.values()]
    squares = math.fsum(d * d for d in deviations)
    se = math.sqrt(squares * size / (size - 1)) / len(seen)
    if se < 1e-9:
        return 0.0, _clopper_pearson(mean, size), "clopper-pearson"
    method: Method = "t"
    low, high = -_t(size), _t(size)
    if size < 100 or not 0.1 <= mean <= 0.9:
        ends = _bootstrap_t(deviations, [len(xs) for xs in clusters.values()])
        if ends is None:
            return se, _clopper_pearson(mean, size), "clopper-pearson"
        method = "bootstrap-t"
        low, high = ends
    return se, (max(mean - high * se, 0.0), min(mean - low * se, 1.0)), method


def _t(size: int) -> float:
    from scipy import special

    return float(special.stdtrit(size - 1, 1 - TAIL))


def _clopper_pearson(mean: float, size: int) -> Interval:
    """The exact binomial interval, for `size * mean` successes in `size`.

    A mean of values in [0, 1] varies at most as that of zeros and ones, so where the values lie
    in between the interval is too wide rather than too narrow.
    """
    from scipy import special

    c = size * mean
    low = 0.0 if c < 1e-6 else float(special.betaincinv(c, size - c + 1, TAIL))
    high = 1.0 if size - c < 1e-6 else float(special.betaincinv(c + 1, size - c, 1 - TAIL))
    return low, high


def _bootstrap_t(deviations: Sequence[float], sizes: Sequence[int]) -> Interval | None:
    """The 2.5 % and 97.5 % points of (mean* - mean) / se* over resampled clusters.

    A resample whose questions all agree has no standard error. These are left out; when they are
    as many as a tail, that tail is unknown and the answer is None.

    Args:
        deviations: Each cluster's summed deviation from the mean. Shape: [C].
        sizes: Questions in each cluster. Shape: [C].
    """
    import numpy as np

    pairs = np.column_stack([deviations, sizes]).astype(np.float64)
    # Drawing how often each different pair occurs is the same as drawing clusters, and for
    # binary rewards there are only a few: 100,000 questions cost what 100 do.
    pairs, times = np.unique(pairs, axis=0, return_counts=True)
    d, m = pairs[:, 0], pairs[:, 1]
    sums = np.column_stack([d, m, d * d, d * m, m * m])
    rng = np.random.default_rng(0)
    chunk = max(1, 2_000_000 // len(pairs))  # bounds the memory
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
    """The t of each resample that has one, from its sums of d, m, d², dm, m². Shape: [≤ B]."""
    import numpy as np

    d, m, dd, dm, mm = sums.T
    shift = d / m
    squares = dd - 2 * shift * dm + shift**2 * mm
    usable = squares > 1e-9 * dd  # relative: what is left after cancellation is rounding
    se = np.sqrt(squares[usable] * size / (size - 1)) / m[usable]
    return np.asarray(shift[usable] / se)
