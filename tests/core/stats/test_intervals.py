import math
from statistics import stdev

import numpy as np
import pytest

from grpo_practice.core.stats import (
    Question,
    score,
)
from tests.core.stats.questions import binary, tally


def test_the_standard_error_is_that_of_question_means() -> None:
    rows: list[list[float | None]] = [[1, 0], [1, 1], [0, 0, 0, 1], [0.5]]
    result = score(tally(*rows), 2)
    means = [0.5, 1, 0.25, 0.5]
    assert result.se == pytest.approx(stdev(means) / 2, rel=1e-12)


def test_the_standard_error_here_is_that_of_the_rollouts_alone() -> None:
    # Within-question variances 1/3 (of 1 0 0 1) and 0.5 (of 1 0), over n = 2 questions.
    result = score(tally([1, 0, 0, 1], [1, 0]), 2)
    assert result.se_here == pytest.approx(math.sqrt((1 / 3) / 4 + 0.5 / 2) / 2, rel=1e-12)
    assert score(tally([1, 0, 0, 1], [1]), 2).se_here is None


def test_the_standard_error_is_cluster_robust() -> None:
    # Means 1 .5 | 0 | .5 .25 .75 by cluster, overall .5: summed deviations .5, -.5, 0.
    result = score(tally([1], [1, 0], [0], [1, 0], [0.25], [0.75], clusters="aabccc"), 2)
    assert result.se == pytest.approx(math.sqrt((0.25 + 0.25) * 3 / 2) / 6, rel=1e-12)


def test_repeating_each_question_in_its_cluster_adds_no_certainty() -> None:
    rng = np.random.default_rng(3)
    means = rng.uniform(size=120)
    once = score(tally(*([m] for m in means)), 1)
    family = [
        Question(f"{i}{j}", 1, 0, m, m * m, 1, "", str(i))
        for i, m in enumerate(means)
        for j in "abc"
    ]
    thrice = score(family, 1)
    assert thrice.se == pytest.approx(once.se, rel=1e-9)
    assert thrice.ci95 == pytest.approx(once.ci95, rel=1e-9)
    alone = score([Question(q.key, q.n, q.c, q.total, q.total_sq, 1) for q in family], 1)
    assert alone.se is not None
    assert once.se is not None
    assert alone.se < 0.6 * once.se


def test_a_cluster_named_like_a_question_is_not_that_question() -> None:
    mixed = tally([1], [0], [1])
    mixed[0] = Question("x", 1, 1, 1, 1, 1, cluster="1")
    assert score(mixed, 1).se == pytest.approx(stdev([1, 0, 1]) / math.sqrt(3))


def test_the_t_interval_by_hand() -> None:
    # 60 ones and 40 zeros: se = sqrt(.24 * 100/99 / 100), t(99, .975) = 1.98422.
    result = score(binary(np.array([1] * 60 + [0] * 40), 1), 1)
    half = 1.9842169515 * math.sqrt(0.24 / 99)
    assert result.interval == "t"
    assert result.ci95 == pytest.approx((0.6 - half, 0.6 + half), rel=1e-9)


@pytest.mark.parametrize(
    ("rewards", "interval"),
    [
        ([1.0] * 30, (0.8842967, 1.0)),  # 0.025^(1/30)
        ([0.0] * 10, (0.0, 0.3084971)),  # 1 - 0.025^(1/10)
        ([0.5] * 10, (0.1870860, 0.8129140)),  # 5 of 10
    ],
)
def test_equal_scores_have_an_exact_interval_never_one_of_zero_width(
    rewards: list[float], interval: tuple[float, float]
) -> None:
    result = score(tally(*([r, r] for r in rewards)), 2)
    assert result.interval == "clopper-pearson"
    assert result.se == 0
    assert result.ci95 == pytest.approx(interval, abs=1e-6)


def test_many_equal_scores_are_not_left_to_t_even_where_their_sums_round() -> None:
    # 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit.
    rows = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]] * 60
    result = score(tally(*rows), 3)
    assert result.interval == "clopper-pearson"
    assert result.ci95 == pytest.approx((0.1325476, 0.2828099), abs=1e-6)  # 24 of 120


@pytest.mark.parametrize("right", [20, 29, 59, 97, 199])
def test_few_questions_or_a_score_near_the_end_is_not_left_to_t(right: int) -> None:
    n = {20: 30, 29: 30, 59: 60, 97: 100, 199: 200}[right]
    result = score(binary(np.array([1] * right + [0] * (n - right)), 1), 1)
    assert result.interval in ("bootstrap-t", "clopper-pearson")
    assert result.ci95 is not None
    low, high = result.ci95
    assert 0 <= low < right / n < high <= 1
    # Farther towards the middle than away from it, where the symmetric interval overshoots.
    assert right / n - low > high - right / n


def test_a_bootstrap_without_a_tail_gives_way_to_the_exact_interval() -> None:
    # One wrong of 30: a third of the resamples have none wrong, so no standard error.
    result = score(binary(np.array([1] * 29 + [0]), 1), 1)
    assert result.interval == "clopper-pearson"
    assert result.ci95 == pytest.approx((0.8278306, 0.9991565), abs=1e-6)


@pytest.mark.parametrize("odd", [0.1, 0.4, 0.69])
def test_what_rounding_leaves_is_no_standard_error_of_a_resample(odd: float) -> None:
    assert score(tally([odd], *([0.7] for _ in range(11))), 1).interval == "clopper-pearson"


def test_the_same_counts_give_the_same_interval_in_any_order() -> None:
    rng = np.random.default_rng(5)
    questions = binary(rng.binomial(5, rng.beta(0.8, 0.2, 40)), 5)
    assert score(questions, 5).interval == "bootstrap-t"
    assert score(questions, 5).ci95 == score(questions[::-1], 5).ci95


def test_the_bootstrap_agrees_with_one_that_draws_questions_one_by_one() -> None:
    rng = np.random.default_rng(8)
    x = rng.binomial(5, rng.beta(1.2, 0.8, 60)) / 5
    n, mean, se = len(x), x.mean(), x.std(ddof=1) / math.sqrt(len(x))
    drawn = x[rng.integers(n, size=(20_000, n))]
    t = (drawn.mean(axis=1) - mean) / (drawn.std(axis=1, ddof=1) / math.sqrt(n))
    low, high = np.quantile(t, [0.025, 0.975])
    result = score(binary((x * 5).round(), 5), 5)
    assert result.interval == "bootstrap-t"
    assert result.ci95 == pytest.approx((mean - high * se, mean - low * se), abs=0.15 * se)


@pytest.mark.parametrize("rewards", [[], [[None, None]], [[1, 0]], [[1], [None]]])
def test_one_question_says_nothing_of_others(rewards: list[list[float | None]]) -> None:
    result = score(tally(*rewards), 2)
    assert (result.se, result.ci95, result.interval) == (None, None, "none")


def coverage(n: int, k: int, mean: float, seeds: int = 200) -> tuple[float, float]:
    """How often the interval, and the binomial one on n*k rollouts, holds the true mean."""
    held = naive = 0
    for seed in range(seeds):
        rng = np.random.default_rng([n, k, seed])
        right = rng.binomial(k, rng.beta(mean, 1 - mean, n))  # U-shaped difficulty
        result = score(binary(right, k), k)
        assert result.ci95 is not None
        assert result.mean is not None
        low, high = result.ci95
        held += low <= mean <= high
        half = 1.96 * math.sqrt(result.mean * (1 - result.mean) / (n * k))
        naive += abs(result.mean - mean) <= half
    return held / seeds, naive / seeds


@pytest.mark.long
@pytest.mark.parametrize(("n", "k", "mean"), [(30, 5, 0.75), (30, 32, 0.8), (100, 5, 0.92)])
def test_the_interval_covers_the_truth_where_the_binomial_one_does_not(
    n: int, k: int, mean: float
) -> None:
    ours, naive = coverage(n, k, mean, seeds=100)
    assert 0.92 <= ours <= 0.995
    assert naive < 0.85


@pytest.mark.parametrize(("n", "mean"), [(20, 0.92), (30, 0.97)])
def test_the_interval_covers_the_truth_for_few_questions_asked_once(n: int, mean: float) -> None:
    assert coverage(n, 1, mean, seeds=300)[0] >= 0.93
