"""Estimates the effect of each experience from rollouts that were each shown half of the library.

Each experience is shown in half of the rollouts, so one run measures all of them as precisely as a
separate run would measure one. Since questions differ far more than experiences do, the comparison
is made within a question: between its rollouts with an experience and its rollouts without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from grpo_practice.core.stats.intervals import TAIL
from grpo_practice.core.stats.paired import effective_clusters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

FEWEST, MOST = 2, 63
"""Minimum and maximum number of experiences whose effects can be measured together."""
LEAST_ROWS = 16
"""Number of rows of the smallest design: with fewer, the same halves would repeat too often."""
HARMFUL = 0.8
"""Probability of harm above which an experience is removed."""
LEAST_TAU = 0.002
"""Smallest standard deviation assumed for the true effects."""

_ALONE = 1 - 1e-6
"""Share of a parameter that the data must determine for it to be estimated."""
_SAME = 1e-9
"""Standard error that is only rounding: if all rewards of every question are equal, the effect is
unknown.
"""


def halves(experiences: int) -> Bools:
    """Return which experiences each half of the library shows; complements are the other halves.

    In rows and complements together, no main effect is confounded with an interaction of two
    experiences. Shape: [2^j, m].
    """
    import numpy as np
    from scipy.linalg import hadamard

    rows = LEAST_ROWS
    while rows <= experiences:
        rows *= 2
    # Leave out the first column, which is constant: every half would show that experience.
    shown: Bools = hadamard(rows, dtype=np.int8)[:, 1 : experiences + 1] > 0
    return shown


def design(experiences: int, questions: int, k: int, seed: int) -> Bools:
    """Return which experiences each attempt at each question is shown. Shape: [questions, k, m].

    A question's attempts are k / 2 rows of `halves`, each followed by its complement. Rows are
    dealt from shuffled decks, so that each half is shown about equally often. With more questions
    or a larger k, the halves already dealt stay the same.

    Raises:
        ValueError: k is odd, or there are fewer than 2 or more than 63 experiences.
    """
    import numpy as np

    if not FEWEST <= experiences <= MOST or k % 2 or k < 2:
        raise ValueError(f"{experiences} experiences and {k} attempts have no design")
    rows = halves(experiences)
    shown = np.empty((questions, k, experiences), np.bool_)
    for pair in range(k // 2):
        # The deal must never change: a resumed run would get halves that are not complements of
        # those it has. Therefore use Python's generator, whose shuffle is the same in every
        # version.
        rng, dealt = Random(f"{seed}|{pair}"), list[int]()
        while len(dealt) < questions:
            deck = [*range(len(rows))]
            rng.shuffle(deck)
            dealt += deck
        shown[:, 2 * pair] = rows[dealt[:questions]]
    shown[:, 1::2] = ~shown[:, ::2]
    return shown


def planned_se(sigma2: float, omega2: float, experiences: int, questions: int, k: int) -> float:
    """Return the expected standard error of an experience's effect.

    For m experiences and N = questions * k rollouts, its square is (4 σ² + ω² (k + 2 (m - 1))) / N:
    the noise of the rollouts, plus the variation of effects between questions, including the other
    experiences, of which each rollout is shown a random half.

    Args:
        sigma2: Variance of the rewards within a question when the same half is shown.
        omega2: Variance of an effect between questions, averaged over the experiences.
        experiences: Number of experiences in the library.
        questions: Number of questions.
        k: Rollouts per question.
    """
    variance = 4 * sigma2 + omega2 * (k + 2 * (experiences - 1))
    return float((variance / (questions * k)) ** 0.5)


@dataclass(frozen=True, slots=True)
class Effects:
    """Effect of each experience on the score when about half of the others are shown.

    Arrays contain nan for an experience that the rollouts cannot separate from others. Shape: [m].
    """

    effect: Floats
    """Score with the experience minus score without it; not shrunk, because shrunk estimates have
    no valid interval.
    """
    se: Floats
    low: Floats
    high: Floats
    """Ends of the 95 % interval of each effect alone."""
    p_harm: Floats
    """Probability that the effect is below 0, given the effects of the others."""
    expected: Floats
    """Mean of the effect, given the effects of the others."""
    total: float
    """Sum of the effects; nan if it is not determined."""
    total_se: float
    rollouts: int
    """Scored rollouts that carry information: a question with only one rollout has no
    comparison.
    """
    clusters: int
    effective_clusters: float

    @property
    def known(self) -> Bools:
        """Whether the rollouts determine the effect, for each experience."""
        import numpy as np

        known: Bools = ~np.isnan(self.effect)
        return known


def effects(rewards: Floats, shown: Bools, question: Ints, cluster: Ints) -> Effects:
    """Estimate effects by least squares within each question, with clustered errors.

    Rollouts may be missing, and any experiences may have been shown together; effects that cannot
    be separated are nan.

    Args:
        rewards: Reward of each scored rollout. Shape: [N].
        shown: Whether the rollout was shown each experience. Shape: [N, m].
        question: Question of the rollout. Shape: [N].
        cluster: Cluster of that question. Shape: [N].
    """
    import numpy as np
    from scipy import special

    y, x, of, asked = _within(rewards, shown, question, cluster)
    m, sizes = x.shape[1], np.bincount(of)
    groups, effective = len(sizes), effective_clusters(sizes) if len(of) else 0.0
    # pinv, because experiences that are always shown together make the matrix singular.
    inverse = np.linalg.pinv(x.T @ x, hermitian=True)
    effect, determined = inverse @ (x.T @ y), inverse @ (x.T @ x)
    # The means of the questions are fitted, too; with one pair each, they use up half of the
    # rollouts.
    free = len(y) - asked - round(float(np.trace(determined)))
    # Without degrees of freedom there is neither a standard error nor a t.
    if effective <= 1 or free < 1:
        return _nothing(m, len(y), groups, effective)
    scores = np.zeros((groups, m))
    np.add.at(scores, of, x * (y - x @ effect)[:, None])
    correction = groups / (groups - 1) * (len(y) - asked) / free
    covariance = correction * inverse @ (scores.T @ scores) @ inverse
    se = np.sqrt(np.maximum(covariance.diagonal(), 0))
    told = (determined.diagonal() > _ALONE) & (se > _SAME)
    one = np.ones(m)
    summed = bool(told.any()) and np.allclose(determined @ one, one)
    total, total_se = float(effect.sum()), float(np.sqrt(max(float(one @ covariance @ one), 0)))
    effect, se = np.where(told, effect, np.nan), np.where(told, se, np.nan)
    half = float(special.stdtrit(effective - 1, 1 - TAIL)) * se
    expected, p_harm = _given_others(effect, covariance, told)
    return Effects(
        effect=effect,
        se=se,
        low=effect - half,
        high=effect + half,
        p_harm=p_harm,
        expected=expected,
        total=total if summed else np.nan,
        total_se=total_se if summed else np.nan,
        rollouts=len(y),
        clusters=groups,
        effective_clusters=effective,
    )


def effects_in_each_case(
    rewards: Floats, shown: Bools, question: Ints, cluster: Ints
) -> list[Effects]:
    """Estimate the effects from the scored rollouts, then with failed ones as 0, and as 1.

    An experience that turns wrong answers into failures looks good among the scored rollouts; its
    effect disappears once failed rollouts count as 0. Without failures, only the first estimate is
    returned.

    Args:
        rewards: Reward of each rollout, nan if it failed. Shape: [N].
        shown: As for `effects`. Shape: [N, m].
        question: Question of the rollout. Shape: [N].
        cluster: Cluster of that question. Shape: [N].
    """
    import numpy as np

    scored = ~np.isnan(rewards)
    cases = [effects(rewards[scored], shown[scored], question[scored], cluster[scored])]
    if not scored.all():
        filled = (np.where(scored, rewards, reward) for reward in (0.0, 1.0))
        cases += [effects(each, shown, question, cluster) for each in filled]
    return cases


def _within(
    rewards: Floats, shown: Bools, question: Ints, cluster: Ints
) -> tuple[Floats, Floats, Ints, int]:
    """Return the deviations of rewards and of shown experiences from their mean in the question.

    Questions with one rollout are left out. The other results are the number of each rollout's
    cluster, counted from 0, and the number of questions. Shapes: [N], [N, m], [N].
    """
    import numpy as np

    _, number, size = np.unique(question, return_inverse=True, return_counts=True)
    kept = size[number] > 1
    if not kept.any():
        return np.zeros(0), np.zeros((0, shown.shape[1])), np.zeros(0, np.int64), 0
    _, of, size = np.unique(question[kept], return_inverse=True, return_counts=True)
    both = np.column_stack([rewards[kept], shown[kept]]).astype(np.float64)
    means = np.zeros((len(size), both.shape[1]))
    np.add.at(means, of, both)
    both -= (means / size[:, None])[of]
    _, family = np.unique(cluster[kept], return_inverse=True)
    return both[:, 0], both[:, 1:], family, len(size)


def _given_others(effect: Floats, covariance: Floats, told: Bools) -> tuple[Floats, Floats]:
    """Return the mean of each effect and the probability that it is below 0.

    The model is normal-normal: true effects have a mean and a variance, estimated by the method of
    moments. The uncertainty of the mean is included: treating the mean as known marked all
    experiences of a library without any effect as harmful. Shapes: [m], [m, m], [m].
    """
    import numpy as np
    from scipy import special

    expected, p_harm = np.full((2, len(effect)), np.nan)
    if not told.any():
        return expected, p_harm
    b, v = effect[told], covariance[np.ix_(told, told)]
    m, s2 = len(b), v.diagonal()
    between = b.var(ddof=1) - (s2.sum() - v.sum() / m) / (m - 1) if m > 1 else np.inf
    tau2 = max(between, LEAST_TAU**2)
    if not np.isfinite(tau2):
        mean, spread = b, np.sqrt(s2)
    else:
        weight = 1 / (tau2 + s2)
        weight /= weight.sum()
        away = s2 / (tau2 + s2)
        mean = b + away * (weight @ b - b)
        of_mean = weight @ v @ weight + tau2 * (weight**2).sum()
        spread = np.sqrt(tau2 * away + away**2 * of_mean)
    expected[told], p_harm[told] = mean, special.ndtr(-mean / spread)
    return expected, p_harm


def _nothing(m: int, rollouts: int, clusters: int, effective: float) -> Effects:
    import numpy as np

    unknown, nan = np.full(m, np.nan), float("nan")
    six = (unknown, unknown, unknown, unknown, unknown, unknown)
    return Effects(*six, nan, nan, rollouts, clusters, effective)


def kept(found: Effects) -> list[int]:
    """Return the indices of the experiences that are not likely to be harmful, in order."""
    import numpy as np

    # Not `<=`: an unknown effect is nan, and its experience is kept.
    return [int(j) for j in np.flatnonzero(~(found.p_harm > HARMFUL))]


def best_within(worth: Sequence[float], sizes: Sequence[int], most: int) -> list[int]:
    """Return the indices of the entries with the largest total worth that fit, at least one.

    If all entries fit, all are returned: an effect that is not known to be good need not be bad.

    Raises:
        ValueError: Even the smallest entry does not fit.
    """
    if sum(sizes) <= most:
        return [*range(len(sizes))]
    if min(sizes) > most:
        raise ValueError(f"the smallest takes {min(sizes)}, but there is room for only {most}")
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    # Solve exactly, because taking the best entries first could leave room that two smaller ones
    # would use better.
    size = np.asarray(sizes, np.float64)
    room = [LinearConstraint(size[None], 0, most), LinearConstraint(np.ones((1, len(size))), 1)]
    whole = np.ones(len(size), np.int64)
    # An unknown effect counts as 0.
    gain = np.nan_to_num(np.asarray(worth, np.float64))
    found = milp(-gain, constraints=room, bounds=Bounds(0, 1), integrality=whole)
    if not found.success:
        raise ValueError(f"no choice was found: {found.message}")
    return [int(j) for j in np.flatnonzero(found.x > 0.5)]
