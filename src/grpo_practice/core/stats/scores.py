"""Rewards of groups, and scores of runs: means, Pass@k and pass^k, with their intervals."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from grpo_practice.core.stats.intervals import Interval, Method, spread_of

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


@dataclass(frozen=True, slots=True)
class Question:
    """Counts of one question's rollouts."""

    key: str
    n: int = 0
    """Number of scored rollouts."""
    c: int = 0
    """Number of correct rollouts among them."""
    total: float = 0.0
    """Sum of the rewards."""
    total_sq: float = 0.0
    """Sum of the squared rewards."""
    planned: int = 0
    """Number of planned rollouts; unlike `n`, it includes failed ones."""
    source: str = ""
    cluster: str | None = None
    """Name shared by the questions of a family; None means that the question is its own cluster."""
    unscorable: bool = False
    """Whether it was skipped because no answer could be scored: neither right nor wrong."""

    @property
    def mean(self) -> float:
        """Mean reward of the scored rollouts; `n` must not be 0."""
        return self.total / self.n

    @property
    def variance(self) -> float:
        """Unbiased variance of the rewards within the question; `n` must be 2 or more."""
        # Rounding may make the difference slightly negative.
        return max(self.total_sq - self.total * self.total / self.n, 0.0) / (self.n - 1)

    @property
    def cluster_name(self) -> tuple[bool, str]:
        """Name of its cluster; the flag separates a cluster from a question of the same name."""
        return (False, self.key) if self.cluster is None else (True, self.cluster)

    def plus(self, other: "Question") -> "Question":
        """Return the sum of the counts of one question that was asked twice."""
        return replace(
            self,
            n=self.n + other.n,
            c=self.c + other.c,
            total=self.total + other.total,
            total_sq=self.total_sq + other.total_sq,
            planned=self.planned + other.planned,
            cluster=other.cluster if self.cluster is None else self.cluster,
        )


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return 1 - C(n-c, k) / C(n, k), the chance that one of k of the n is correct; n >= k."""
    return 1.0 - _all_from(n - c, n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return C(c, k) / C(n, k), the chance that all k of the n are correct; n >= k."""
    return _all_from(c, n, k)


def _all_from(m: int, n: int, k: int) -> float:
    """Return C(m, k) / C(n, k)."""
    if m < k:
        return 0.0
    # A product of ratios: for large n, binomials overflow a float and their difference cancels.
    return math.prod((m - i) / (n - i) for i in range(k))


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one run, with the numbers it is based on."""

    mean: float | None
    """Mean over the scored questions of their mean reward; None if no question is scored."""
    se: float | None
    """Standard error for other questions like these; None below two clusters."""
    se_here: float | None
    """Standard error for exactly these questions (the noise of the rollouts alone); None unless
    every scored question has at least two scored rollouts.
    """
    ci95: Interval | None
    """95 % interval in [0, 1], never of zero width; None below two clusters."""
    interval: Method
    questions: int
    questions_scored: int
    """Questions with at least one reward; the others are missing, not wrong."""
    planned: int
    scored: int
    correct: int
    """Rollouts with full marks."""
    coverage: float
    """scored / planned; 0 if nothing was planned."""
    pass_at: dict[int, float]
    """Pass@j for j = 1, 2, 4, … and k, over the questions with at least j scored rollouts; a j that
    no question reaches is omitted.
    """
    pass_hat: dict[int, float]
    """pass^j (all j correct), for the same j."""
    pass_at_ci95: dict[int, Interval | None]
    """95 % interval of each Pass@j over questions; None below two clusters."""
    pass_hat_ci95: dict[int, Interval | None]
    questions_at_k: int
    """Questions with at least k scored rollouts."""
    questions_unscorable: int = 0
    """Questions whose gold answer cannot be compared with any answer; no other number includes
    them.
    """


def score(questions: Iterable[Question], k: int) -> Score:
    """Score these questions.

    All scored questions have equal weight, however many of their rollouts were scored. The standard
    error is cluster-robust; it is sd/√n if each question is its own cluster. The interval is based
    on t; for fewer than 100 clusters or a mean outside [0.1, 0.9], on a studentised bootstrap over
    clusters (seeded, so the same counts give the same interval); and if all scores are equal, or so
    nearly equal that the bootstrap has no tail to read, on Clopper-Pearson for the number of
    clusters.

    Args:
        questions: One row per question; rows with `n = 0` only lower the coverage, and unscorable
            ones are counted separately.
        k: Configured rollouts per question; at least 1.
    """
    given = list(questions)
    rows = [q for q in given if not q.unscorable]
    seen = [q for q in rows if q.n]
    planned, scored = sum(q.planned for q in rows), sum(q.n for q in rows)
    mean = math.fsum(q.mean for q in seen) / len(seen) if seen else None
    clusters: dict[tuple[bool, str], list[float]] = {}
    for q in seen:
        clusters.setdefault(q.cluster_name, []).append(q.mean)
    spread = spread_of([*clusters.values()], mean)
    noise = None
    if seen and min(q.n for q in seen) >= 2:
        noise = math.sqrt(math.fsum(q.variance / q.n for q in seen)) / len(seen)
    pass_at = _over(seen, k, pass_at_k)
    return Score(
        mean=mean,
        se=spread.se,
        se_here=noise,
        ci95=spread.ci95,
        interval=spread.method,
        questions=len(rows),
        questions_scored=len(seen),
        planned=planned,
        scored=scored,
        correct=sum(q.c for q in rows),
        coverage=scored / planned if planned else 0.0,
        pass_at=pass_at,
        pass_hat=_over(seen, k, pass_hat_k),
        pass_at_ci95={j: pass_interval(seen, j) for j in pass_at},
        pass_hat_ci95={j: pass_interval(seen, j, pass_hat_k) for j in pass_at},
        questions_at_k=sum(q.n >= k for q in seen),
        questions_unscorable=len(given) - len(rows),
    )


def pass_interval(
    questions: Iterable[Question], j: int, chance: Callable[[int, int, int], float] = pass_at_k
) -> Interval | None:
    """Return the 95 % interval of Pass@j over questions; None below two clusters with j scored.

    As in `score`, the questions are random: resampling the rollouts of a question would bias it.

    Args:
        questions: One row per question; rows with fewer than j scored rollouts are ignored.
        j: Number of rollouts, one of which is to be correct.
        chance: Probability for one question: `pass_at_k` or `pass_hat_k`.
    """
    clusters: dict[tuple[bool, str], list[float]] = {}
    for q in questions:
        if q.n >= j and not q.unscorable:
            clusters.setdefault(q.cluster_name, []).append(chance(q.n, q.c, j))
    values = [value for of in clusters.values() for value in of]
    mean = math.fsum(values) / len(values) if values else None
    return spread_of([*clusters.values()], mean).ci95


def by_source(questions: Iterable[Question], k: int) -> dict[str, Score]:
    """Score each source separately, in alphabetical order of the sources."""
    parts: dict[str, list[Question]] = {}
    for q in questions:
        parts.setdefault(q.source, []).append(q)
    return {source: score(parts[source], k) for source in sorted(parts)}


def _over(
    seen: Sequence[Question], k: int, chance: Callable[[int, int, int], float]
) -> dict[int, float]:
    counts = Counter((q.n, q.c) for q in seen)  # few distinct pairs, however many questions
    found = {}
    for j in sorted({2**i for i in range(k.bit_length())} | {k}):
        enough = [(n, c, times) for (n, c), times in counts.items() if n >= j]
        if enough:
            total = math.fsum(times * chance(n, c, j) for n, c, times in enough)
            found[j] = total / sum(times for _, _, times in enough)
    return found
