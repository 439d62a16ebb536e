"""The simulated comparisons vary as their rows say."""

import numpy as np
import pytest
from bench.proof import Cell, _repeated


@pytest.mark.parametrize("mean", [0.5, 0.92])
@pytest.mark.parametrize("effect", ["none", "even", "skewed"])
def test_effects_are_as_large_as_said_at_every_mean(effect: str, mean: float) -> None:
    p, b = Cell(1, 1, 1, effect, mean).chances(np.random.default_rng(0), (400_000, 1))
    assert min(p.min(), b.min()) >= 0
    assert max(p.max(), b.max()) <= 1
    assert p.mean() == pytest.approx(mean, abs=0.002)
    assert (b - p).mean() == pytest.approx(0, abs=0.002)
    deviation = {"none": 0, "even": 0.13, "skewed": 0.1}[effect]
    assert (b - p).std() == pytest.approx(deviation, abs=0.002)
    if effect == "skewed":
        assert (b - p > 0.29).mean() == pytest.approx(0.1, abs=0.002)
        assert (b - p < -0.03).mean() == pytest.approx(0.9, abs=0.002)


def test_a_gain_is_the_mean_difference() -> None:
    cell = Cell(50, 32, 4, "skewed", 0.92, families=5)
    d = cell.draw(np.random.default_rng(0), 20_000, gain=0.1)
    assert d.mean() == pytest.approx(0.008, abs=0.002)


@pytest.mark.long
def test_who_compares_until_there_is_a_verdict_seldom_has_a_false_one() -> None:
    for row in _repeated(200):
        assert row.values[0] < 6, row.name
        assert row.notes["each at 5 %, as if it were alone, %"] > 12
