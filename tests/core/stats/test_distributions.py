"""Student's t and the beta distribution, against scipy's."""

from typing import TYPE_CHECKING

import numpy as np
import pytest

from grpo_practice.core.stats.distributions import (
    beta_below,
    beta_point,
    shifted_t_below,
    t_beyond,
    t_point,
)
from tests.late import Late

if TYPE_CHECKING:
    from scipy import special
else:
    special = Late("scipy.special")

DEGREES = [0.3, 1, 1.7, 2, 5, 9.4, 30, 99, 1000, 50_000]


@pytest.mark.parametrize("df", DEGREES)
@pytest.mark.parametrize("tail", [0.05, 0.025, 0.005])
def test_the_points_of_t_are_those_of_scipy(df: float, tail: float) -> None:
    assert t_point(tail, df) == pytest.approx(special.stdtrit(df, 1 - tail), rel=1e-12)


@pytest.mark.parametrize("df", DEGREES)
@pytest.mark.parametrize("t", [0.0, 0.01, 0.7, 1.96, -1.96, 5, 40])
def test_the_p_of_t_is_that_of_scipy(df: float, t: float) -> None:
    assert t_beyond(t, df) == pytest.approx(2 * special.stdtr(df, -abs(t)), rel=1e-11)


def test_a_difference_without_any_error_has_a_p_of_zero() -> None:
    assert t_beyond(float("inf"), 9) == 0


@pytest.mark.parametrize("size", [2, 7, 40, 999, 100_000])
@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 0.87])
def test_the_points_of_beta_are_those_of_scipy(size: int, share: float) -> None:
    c = share * size
    for p, a, b in ((0.025, c, size - c + 1), (0.975, c + 1, size - c)):
        assert beta_point(p, a, b) == pytest.approx(special.betaincinv(a, b, p), rel=1e-11)


def test_beta_is_that_of_scipy_everywhere() -> None:
    rng = np.random.default_rng(0)
    for a, b, x in zip(*rng.uniform(0.1, 60, (2, 300)), rng.uniform(0, 1, 300), strict=True):
        below = float(special.betainc(a, b, x))
        assert beta_below(x, a, b) == pytest.approx(below, rel=1e-11, abs=1e-300)
    assert [beta_below(x, 2.0, 3.0) for x in (0.0, 1.0)] == [0, 1]


@pytest.mark.parametrize("df", [9, 40, 3_000])
@pytest.mark.parametrize("t", [-2.0, 2.3, 7.9])
def test_noncentral_t_is_that_of_scipy(df: int, t: float) -> None:
    for shift in (0.0, 2.9, 8.0):
        below, slope = shifted_t_below(t, df, shift)
        assert below == pytest.approx(float(special.nctdtr(df, shift, t)), abs=1e-9)
        more, _ = shifted_t_below(t, df, shift + 1e-5)
        assert slope == pytest.approx((more - below) / 1e-5, abs=1e-5)
