"""The difference of two evaluations on the same questions: how large, how sure, which way.

Questions are what varies, as in `intervals`: a new question has another difference, so one number
a question counts, and its standard error is over clusters of questions. The interval and p are one
statistic, so that they never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, SupportsInt

from grpo_practice.stats.intervals import TAIL, Interval
from grpo_practice.stats.scores import Question

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

ALPHA = 2 * TAIL
"""Chance of a verdict where there is no difference."""
SURE = 0.84
"""Standard errors by which one library beats another: the other is better in 1 case of 5 then."""
FEWEST = 10
"""Clusters of questions below which there is no verdict; see `effective_clusters`."""
FIRST = 0.8 * ALPHA
"""Chance of a verdict, without a difference, in the first comparison on a set of questions."""

_SAME = 1e-9
"""Size of a difference that is rounding."""

Verdict = Literal["better", "worse", "none found", "too few", "missing"]
"""Kind of a result: `missing` where answers that failed could overturn it."""


@dataclass(frozen=True, slots=True)
class Tested:
    """Tests of mean differences, one for each row of differences. Shape of each field: [...]."""

    mean: Floats
    se: Floats
    low: Floats
    high: Floats
    """Ends of the 95 % interval, in [-1, 1]."""
    p: Floats
    """Two-sided, of no difference; below 0.05 just where the interval leaves out 0."""


def effective_clusters(sizes: Iterable[SupportsInt]) -> float:
    """Return (Σ m)² / Σ m², which is the number of the clusters where all are of one size m.

    One family of 50 and 9 single questions are not 10 clusters but 1.4. Shape: [C].
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
        """The mean reward of B less that of A."""
        return self.b - self.a


@dataclass(frozen=True, slots=True)
class Bound:
    """Difference where all missing rollouts had gone one way."""

    mean: float
    ci95: Interval
    p: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean reward of arm B less that of arm A, over the questions that were scored in both."""

    mean: float
    se: float
    ci95: Interval
    """95 % interval of this difference alone, in [-1, 1]; never of zero width."""
    p: float
    """Two-sided p of this difference alone."""
    clusters: int
    effective_clusters: float
    """Number of clusters of one size that would tell as much."""
    questions: Sequence[Moved]
    """Questions scored in both arms, in the order of the baseline."""
    missing: int
    """Rollouts, planned on common questions, without a reward in either arm."""
    worst: Bound | None = None
    """Missing rollouts count 0 in B and 1 in A; None where none is missing."""
    best: Bound | None = None
    """Missing rollouts count 1 in B and 0 in A."""

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
        """Largest p of the scored rollouts, the worst and the best case; 1 where the sign differs.

        Both cases count: one missing answer may be worth more than all others, and a larger mean
        is less sure then.
        """
        cases = [case for case in (self.worst, self.best) if case is not None]
        if any(case.mean * self.mean <= 0 for case in cases):
            return 1.0
        return max([self.p, *(case.p for case in cases)])


def paired_t(differences: Floats, cluster: Ints) -> Tested:
    """Test whether the mean difference is 0, for each row.

    t with (effective clusters - 1) degrees of freedom over the cluster-robust standard error. There
    is no such error where all differences of a row are one value d. Then a share of at least
    L = (a / 2)^(1 / clusters) of the questions to come has that value at level 1 - a
    (Clopper-Pearson), and the others have any in [-1, 1], which gives d L ± (1 - L); p is the a at
    which an end of it is 0.

    Args:
        differences: Mean reward in B less that in A. Shape: [..., Q].
        cluster: Number of each question's cluster, counted from 0, none left out. Shape: [Q].
    """
    import numpy as np
    from scipy import special

    sizes = np.bincount(cluster)
    size = len(sizes)
    # Counted by their number, uneven families reject a true null in up to 86 %, not 5.
    effective = effective_clusters(sizes)
    mean = differences.mean(axis=-1)
    order = np.argsort(cluster, kind="stable")
    starts = np.cumsum(sizes) - sizes
    sums = np.add.reduceat((differences - mean[..., None])[..., order], starts, axis=-1)
    se = np.sqrt((sums**2).sum(axis=-1) * size / max(size - 1, 1)) / len(cluster)
    df = effective - 1 if size > 1 else 1.0
    alike = se < _SAME
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * special.stdtr(df, -np.abs(mean) / se)
    half = special.stdtrit(df, 1 - TAIL) * se
    share = TAIL ** (1 / effective)
    centre = np.where(alike, mean * share, mean)
    half = np.where(alike, 1 - share, half)
    p = np.where(alike, np.minimum(2 * (1 + np.abs(mean)) ** -effective, 1.0), p)
    low, high = np.maximum(centre - half, -1.0), np.minimum(centre + half, 1.0)
    return Tested(mean, np.where(alike, 0.0, se), low, high, p)


def difference(a: Iterable[Question], b: Iterable[Question]) -> Difference | None:
    """Compare two arms on the questions that both have; None where none is scored in both.

    Args:
        a: The baseline's questions; `key` tells the sample, and one asked twice is one question.
        b: Those of the other arm.
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
    """Return whether a difference is large enough to take B where A would be taken without it.

    This is no verdict: of several libraries whose scores are noise, the highest is too high.
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
    """Place of a comparison among those of its experiment on the same questions."""

    number: int = 1
    """1 for the first comparison."""
    together: int = 1
    """Contrasts that were measured at once, whether or not each of them is shown."""

    @property
    def level(self) -> float:
        """Part of `ALPHA` that this comparison may spend.

        The first may spend 4/5, the next 1/10, 1/30, 1/60 and so on: all of them together never
        exceed `ALPHA`. Multiplying p by the number of comparisons so far would exceed it, since
        the first one would spend all.
        """
        n = self.number
        return FIRST if n == 1 else (ALPHA - FIRST) / (n * (n - 1))


def adjusted(ps: Sequence[float], looks: Sequence[Look]) -> list[float]:
    """Return p-values to compare with `ALPHA`, whatever was compared before. Shape: [C].

    The contrasts of one look share its level (Holm), and contrasts that are not given count as 1.
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
    """Return what is found of each contrast. Shape: [C].

    The verdict follows the adjusted p, which may not find what the interval of one contrast alone
    would; and it holds in the worst and in the best case. Without `looks` all are of a first one.
    """
    looks = looks or [Look()] * len(differences)
    plain = adjusted([d.p for d in differences], looks)
    sure = adjusted([d.p_in_each_case for d in differences], looks)
    return [_verdict(*of) for of in zip(differences, plain, sure, strict=True)]


def _verdict(found: Difference, plain: float, sure: float) -> Verdict:
    # Families that lack a question or two count as whole ones.
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
    # A question that was not played in one arm may lack the name of its cluster there.
    known = [b if a.cluster is None else a for a, b in pairs]
    cluster = [numbers.setdefault(q.cluster_name, len(numbers)) for q in known]
    found = paired_t(np.asarray(differences, np.float64), np.asarray(cluster, np.int64))
    ends = (float(found.low), float(found.high))
    return _Found(
        Bound(float(found.mean), ends, float(found.p)), float(found.se), np.bincount(cluster)
    )


def _by_key(questions: Iterable[Question]) -> Mapping[str, Question]:
    """Return each question once: rows of the same sample are added up."""
    found = dict[str, Question]()
    for q in questions:
        if q.unscorable:
            continue
        known = found.get(q.key)
        found[q.key] = q if known is None else known.plus(q)
    return found


def _filled(question: Question, reward: float) -> float:
    """Return the mean reward of the planned rollouts, the missing ones with this reward."""
    planned = max(question.planned, question.n)
    return (question.total + (planned - question.n) * reward) / planned
