"""The difference between two evaluations on the same questions: size, certainty and direction.

As in `intervals`, the questions are a random sample, so each question contributes one number, and
the standard error is over clusters of questions. The interval and p are based on the same
statistic, so that they never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, SupportsInt

from grpo_practice.core.stats.distributions import t_beyond, t_point
from grpo_practice.core.stats.intervals import TAIL, Interval
from grpo_practice.core.stats.scores import Question

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

ALPHA = 2 * TAIL
"""Probability of a verdict if there is no difference."""
SURE = 0.84
"""Number of standard errors by which one library beats another; at this threshold, the other one is
better in 1 case of 5.
"""
FEWEST = 10
"""Number of clusters of questions below which there is no verdict; see `effective_clusters`."""
FIRST = 0.8 * ALPHA
"""Probability of a verdict, without a difference, in the first comparison on a set of questions."""

_SAME = 1e-9
"""Size of a difference that is only rounding."""

Verdict = Literal["better", "worse", "none found", "too few", "missing"]
"""Kind of result: `missing` if answers that failed could overturn it."""


@dataclass(frozen=True, slots=True)
class Tested:
    """Tests of mean differences, one for each row of differences. Shape of each field: [...]."""

    mean: Floats
    se: Floats
    low: Floats
    high: Floats
    """Ends of the 95 % interval, in [-1, 1]."""
    p: Floats
    """Two-sided p-value for no difference; below 0.05 exactly if the interval excludes 0."""


def effective_clusters(sizes: Iterable[SupportsInt]) -> float:
    """Return (Σ m)² / Σ m²: the number of clusters if all have the same size m.

    One family of 50 questions plus 9 single questions count as 1.4 clusters, not 10. Shape: [C].
    """
    each = [int(size) for size in sizes]
    return float(sum(each) ** 2 / sum(size * size for size in each))


@dataclass(frozen=True, slots=True)
class Moved:
    """A question's mean rewards in the two arms."""

    key: str
    a: float
    b: float

    @property
    def by(self) -> float:
        """Mean reward of B minus mean reward of A."""
        return self.b - self.a


@dataclass(frozen=True, slots=True)
class Bound:
    """Difference if all missing rollouts had gone one way."""

    mean: float
    ci95: Interval
    p: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean reward of arm B minus that of arm A, over the questions that were scored in both."""

    mean: float
    se: float
    ci95: Interval
    """95 % interval of this difference alone, in [-1, 1]; never of zero width."""
    p: float
    """Two-sided p of this difference alone."""
    clusters: int
    effective_clusters: float
    """Number of equal-sized clusters that would be equally informative."""
    questions: Sequence[Moved]
    """Questions scored in both arms, in the order of the baseline."""
    missing: int
    """Number of planned rollouts on common questions that have no reward, in both arms together."""
    worst: Bound | None = None
    """Difference if missing rollouts count 0 in B and 1 in A; None if no rollout is missing."""
    best: Bound | None = None
    """Difference if missing rollouts count 1 in B and 0 in A."""

    @property
    def n(self) -> int:
        """Number of questions."""
        return len(self.questions)

    @property
    def equal(self) -> int:
        """Number of questions with the same mean reward in both."""
        return self.n - self.up - self.down

    @property
    def up(self) -> int:
        """Number of questions with a higher mean reward in B."""
        return sum(q.by > _SAME for q in self.questions)

    @property
    def down(self) -> int:
        """Number of questions with a lower mean reward in B."""
        return sum(q.by < -_SAME for q in self.questions)

    @property
    def p_in_each_case(self) -> float:
        """Largest p among the scored rollouts, the worst and the best case; 1 if signs differ.

        Both extreme cases are needed: one missing answer may be worth more than all others, and
        then the larger mean is less certain.
        """
        cases = [case for case in (self.worst, self.best) if case is not None]
        if any(case.mean * self.mean <= 0 for case in cases):
            return 1.0
        return max([self.p, *(case.p for case in cases)])


def paired_t(differences: Floats, cluster: Ints) -> Tested:
    """Test whether the mean difference is 0, for each row.

    The statistic is t with (effective clusters - 1) degrees of freedom over the cluster-robust
    standard error. There is no such error if all differences of a row have one value d. Then, at
    level 1 - a, at least a share of L = (a / 2)^(1 / clusters) of future questions has that value
    (Clopper-Pearson), and the others have any value in [-1, 1], which gives d L ± (1 - L); p is the
    a at which one end is 0.

    Args:
        differences: Mean reward in B minus that in A. Shape: [..., Q].
        cluster: Number of each question's cluster, counted from 0 without gaps. Shape: [Q].
    """
    import numpy as np

    sizes = np.bincount(cluster)
    size = len(sizes)
    # With the plain number of clusters, a true null hypothesis would be rejected in up to 86 % of
    # cases instead of 5 % if families are uneven.
    effective = effective_clusters(sizes)
    mean = differences.mean(axis=-1)
    # reduceat sums runs of columns, so the columns of each cluster must be adjacent.
    order = np.argsort(cluster, kind="stable")
    starts = np.cumsum(sizes) - sizes
    sums = np.add.reduceat((differences - mean[..., None])[..., order], starts, axis=-1)
    se = np.sqrt((sums**2).sum(axis=-1) * size / max(size - 1, 1)) / len(cluster)
    df = effective - 1 if size > 1 else 1.0
    alike = se < _SAME
    # se is 0 if all differences are alike; these p are replaced below.
    with np.errstate(divide="ignore", invalid="ignore"):
        t = mean / se
    p = np.vectorize(t_beyond, otypes=[np.float64])(t, df)
    half = t_point(TAIL, df) * se
    share = TAIL ** (1 / effective)
    centre = np.where(alike, mean * share, mean)
    half = np.where(alike, 1 - share, half)
    p = np.where(alike, np.minimum(2 * (1 + np.abs(mean)) ** -effective, 1.0), p)
    low, high = np.maximum(centre - half, -1.0), np.minimum(centre + half, 1.0)
    return Tested(mean, np.where(alike, 0.0, se), low, high, p)


def difference(a: Iterable[Question], b: Iterable[Question]) -> Difference | None:
    """Compare two arms on their common questions; None if no question is scored in both.

    Args:
        a: Questions of the baseline; `key` identifies the sample, and duplicates are merged.
        b: Questions of the other arm.
    """
    one, other = _by_key(a), _by_key(b)
    common = [key for key in one if key in other]
    scored = [key for key in common if one[key].n and other[key].n]
    if not scored:
        return None
    pairs = [(one[key], other[key]) for key in scored]
    moved = [Moved(x.key, x.mean, y.mean) for x, y in pairs]
    tested = _bound([q.by for q in moved], pairs)
    every = [(one[key], other[key]) for key in common]
    missing = sum(max(q.planned - q.n, 0) for pair in every for q in pair)
    worst = best = None
    if missing:
        worst = _bound([_filled(y, 0) - _filled(x, 1) for x, y in every], every).bound
        best = _bound([_filled(y, 1) - _filled(x, 0) for x, y in every], every).bound
    return Difference(
        mean=tested.bound.mean,
        se=tested.se,
        ci95=tested.bound.ci95,
        p=tested.bound.p,
        clusters=len(tested.sizes),
        effective_clusters=effective_clusters(tested.sizes),
        questions=moved,
        missing=missing,
        worst=worst,
        best=best,
    )


def beats(mean: float, se: float) -> bool:
    """Return True if the difference is large enough to prefer B to the default A.

    This is not a verdict: among several libraries whose scores are noise, the highest is too high.
    """
    return mean > max(SURE * se, _SAME)


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number, by Holm's step-down procedure. Shape: [C]."""
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        highest = max(highest, min((len(ps) - rank) * ps[i], 1.0))
        adjusted[i] = highest
    return adjusted


@dataclass(frozen=True, slots=True)
class Look:
    """Position of a comparison within its experiment on the same questions."""

    number: int = 1
    """1 for the first comparison."""
    together: int = 1
    """Number of contrasts measured together, whether or not each of them is shown."""

    @property
    def level(self) -> float:
        """Part of `ALPHA` that this comparison may spend.

        The first may spend 4/5, the next ones 1/10, 1/30, 1/60 and so on, so that together they
        never exceed `ALPHA`. Multiplying p by the number of comparisons so far would exceed it,
        since the first one would spend everything.
        """
        n = self.number
        return FIRST if n == 1 else (ALPHA - FIRST) / (n * (n - 1))


def adjusted(ps: Sequence[float], looks: Sequence[Look]) -> list[float]:
    """Return p-values to compare with `ALPHA`, whatever was compared before. Shape: [C].

    The contrasts of one look share its level (Holm); contrasts that are not given count as 1.
    """
    found = [1.0] * len(ps)
    for look in set(looks):
        at = [i for i, other in enumerate(looks) if other == look]
        absent = [1.0] * (look.together - len(at))
        for i, p in zip(at, holm([*(ps[i] for i in at), *absent]), strict=False):
            found[i] = min(p * ALPHA / look.level, 1.0)
    return found


def verdicts(
    differences: Sequence[Difference], looks: Sequence[Look] | None = None
) -> list[Verdict]:
    """Return the verdict on each contrast. Shape: [C].

    The verdict is based on the adjusted p, so it may differ from the interval of one contrast
    alone, and it must hold in the worst and in the best case. Without `looks`, all contrasts belong
    to one first look.
    """
    looks = looks or [Look()] * len(differences)
    plain = adjusted([d.p for d in differences], looks)
    sure = adjusted([d.p_in_each_case for d in differences], looks)
    return [_verdict(*of) for of in zip(differences, plain, sure, strict=True)]


def _verdict(found: Difference, plain: float, sure: float) -> Verdict:
    # Round, so that families lacking a question or two count as complete.
    if round(found.effective_clusters) < FEWEST:
        return "too few"
    if sure < ALPHA:
        return "better" if found.mean > 0 else "worse"
    return "missing" if plain < ALPHA else "none found"


@dataclass(frozen=True, slots=True)
class _Found:
    bound: Bound
    se: float
    sizes: Ints
    """Number of questions in each cluster. Shape: [C]."""


def _bound(differences: Sequence[float], pairs: Sequence[tuple[Question, Question]]) -> _Found:
    import numpy as np

    numbers = dict[tuple[bool, str], int]()
    # A question not played in one arm may lack the name of its cluster there.
    known = [b if a.cluster is None else a for a, b in pairs]
    cluster = [numbers.setdefault(q.cluster_name, len(numbers)) for q in known]
    found = paired_t(np.asarray(differences, np.float64), np.asarray(cluster, np.int64))
    ends = (float(found.low), float(found.high))
    return _Found(
        Bound(float(found.mean), ends, float(found.p)), float(found.se), np.bincount(cluster)
    )


def _by_key(questions: Iterable[Question]) -> Mapping[str, Question]:
    """Return each question once, adding up rows of the same sample."""
    found = dict[str, Question]()
    for q in questions:
        if q.unscorable:
            continue
        known = found.get(q.key)
        found[q.key] = q if known is None else known.plus(q)
    return found


def _filled(question: Question, reward: float) -> float:
    """Return the mean reward of the planned rollouts if missing ones have this reward."""
    planned = max(question.planned, question.n)
    return (question.total + (planned - question.n) * reward) / planned
