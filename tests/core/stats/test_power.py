"""What a comparison can find, against scipy's noncentral t and the plan's examples."""

import math

import numpy as np
import pytest

from grpo_practice.core.stats import Question
from grpo_practice.core.stats.paired import FEWEST, FIRST, paired_t
from grpo_practice.core.stats.power import (
    POWER,
    Noise,
    detectable,
    omega2_between,
    power_of,
    questions_to_find,
    sigma2_within,
)
from tests.late import Late

stats = Late("scipy.stats")

NOISE = Noise(omega2=0.01, sigma2_a=0.12, sigma2_b=0.12)


@pytest.mark.parametrize(
    ("questions", "k", "points"), [(30, 32, 7.3), (100, 4, 7.7), (1319, 1, 4.0), (1319, 4, 2.1)]
)
def test_the_difference_that_can_be_found(questions: int, k: int, points: float) -> None:
    found = detectable(NOISE, questions, k, k)
    assert 100 * found == pytest.approx(points, abs=0.05)
    df = questions - 1
    shift = found / NOISE.se(questions, k, k)
    assert 1 - stats.nct.cdf(stats.t.ppf(0.98, df), df, shift) == pytest.approx(POWER, abs=1e-6)
    assert power_of(NOISE, found, questions, k, k) == pytest.approx(POWER, abs=1e-6)


def test_few_questions_need_more_than_the_normal_says() -> None:
    in_errors = [detectable(Noise(1, 0, 0), n, 1, 1) * math.sqrt(n) for n in (15, 10_000)]
    assert in_errors == pytest.approx([3.14, 2.90], abs=0.01)
    assert detectable(NOISE, 1, 4, 4) == math.inf


@pytest.mark.parametrize("points", [2, 5, 10, 40])
def test_the_fewest_questions_that_find_a_difference(points: int) -> None:
    n = questions_to_find(NOISE, points / 100, 4, 4)
    assert detectable(NOISE, n, 4, 4) <= points / 100 < detectable(NOISE, n - 1, 4, 4)


def test_more_rollouts_buy_nothing_below_what_varies_between_questions() -> None:
    assert NOISE.se(30, 10**9, 10**9) == pytest.approx(0.1 / math.sqrt(30))


def _arm(right: np.ndarray, k: int) -> list[Question]:
    return [
        Question(str(i), n=k, c=int(c), total=float(c), total_sq=float(c), planned=k)
        for i, c in enumerate(right)
    ]


def test_the_components_are_found_again() -> None:
    rng, n, k = np.random.default_rng(0), 20_000, 4
    p = rng.uniform(0.3, 0.7, n)
    b = p + 0.15 * rng.choice([-1, 1], n)
    one, other = _arm(rng.binomial(k, p), k), _arm(rng.binomial(k, b), k)
    sigma2, omega2 = sigma2_within(one), omega2_between([*zip(one, other, strict=True)])
    assert sigma2 == pytest.approx(float((p * (1 - p)).mean()), rel=0.02)
    assert omega2 is not None
    assert omega2[0] < 0.15**2 < omega2[1] < 1.3 * omega2[0]
    same = omega2_between([*zip(one, one, strict=True)])
    assert same == (0, 0)  # their rewards vary less than the rollouts' noise
    assert sigma2_within(_arm(rng.binomial(1, p), 1)) is None
    assert omega2_between([(one[0], other[0])]) is None


def test_what_gets_no_verdict_is_not_promised() -> None:
    assert detectable(NOISE, FEWEST - 1, 4, 4) == math.inf
    assert power_of(NOISE, 0.9, FEWEST - 1, 4, 4) == 0
    assert questions_to_find(NOISE, 0.9, 4, 4) == FEWEST


def test_a_tiny_difference_needs_as_many_questions_as_it_needs() -> None:
    n = questions_to_find(NOISE, 1e-5, 1, 1)
    assert n == pytest.approx((stats.norm.ppf(0.98) + stats.norm.ppf(0.8)) ** 2 * 0.25 / 1e-10)


@pytest.mark.parametrize("difference", [0.0, -0.1, math.nan])
def test_no_difference_is_none_to_find(difference: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        questions_to_find(NOISE, difference, 1, 1)


@pytest.mark.parametrize("questions", [10, 30, 300])
def test_without_any_noise_the_exact_interval_decides(questions: int) -> None:
    none = Noise(0, 0, 0)
    least = detectable(none, questions, 4, 4)
    for factor, is_found in ((1.001, True), (0.999, False)):
        d = np.full(questions, factor * least)
        assert (paired_t(d, np.arange(questions)).p < FIRST) == is_found
        assert power_of(none, factor * least, questions, 4, 4) == is_found
    assert questions_to_find(none, least, 4, 4) == questions


@pytest.mark.long
def test_a_family_is_planned_as_one_question_with_all_their_rollouts() -> None:
    rng, families, size, k, omega = np.random.default_rng(0), 20, 5, 5, 0.13
    p = rng.uniform(0.2, 0.6, (20_000, families))
    sigma2 = 0.4 - 0.4**2 - 0.4**2 / 12
    b = p + 0.12 + omega * rng.choice([-1, 1], p.shape)
    sigma2_b = 0.52 - 0.52**2 - 0.4**2 / 12 - omega**2
    d = (rng.binomial(k * size, b) - rng.binomial(k * size, p)) / (k * size)
    real = float((paired_t(d, np.arange(families)).p < FIRST).mean())
    noise = Noise(omega**2, sigma2, sigma2_b)
    assert power_of(noise, 0.12, families, k * size, k * size) == pytest.approx(real, abs=0.02)
    # By the number of questions it would promise far more.
    assert power_of(noise, 0.12, families * size, k, k) > real + 0.08


@pytest.mark.long_after(1)
@pytest.mark.parametrize(("n", "k"), [(100, 4), (30, 5), (100, 32)])
def test_what_varies_between_questions_is_known_as_well_as_is_said(n: int, k: int) -> None:
    rng, seeds, held = np.random.default_rng(0), 300, 0
    for _ in range(seeds):
        p = rng.uniform(0.2, 0.8, n)
        b = p + 0.1 * rng.choice([-1, 1], n)
        found = omega2_between(
            [*zip(_arm(rng.binomial(k, p), k), _arm(rng.binomial(k, b), k), strict=True)]
        )
        assert found is not None
        held += found[0] <= 0.01 <= found[1]
    assert held / seeds >= 0.9
