import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.stats import (
    advantages,
    correct,
)

REWARD = st.floats(0, 1, allow_nan=False)


def test_advantages_by_hand() -> None:
    # mean 0.5, std (ddof 1) of 1 0 0 1 = sqrt(1/3)
    a = 0.5 / (math.sqrt(1 / 3) + 1e-4)
    assert advantages([1, 0, 0, 1]) == pytest.approx([a, -a, -a, a], rel=1e-12)
    assert advantages([0.25, 0.75]) == pytest.approx(
        [-0.25 / (math.sqrt(0.125) + 1e-4), 0.25 / (math.sqrt(0.125) + 1e-4)], rel=1e-12
    )


@pytest.mark.parametrize("rewards", [[], [1.0], [0.1] * 3, [0.7] * 10, [0, 0.0]])
def test_equal_rewards_have_advantages_of_exactly_zero(rewards: list[float]) -> None:
    assert advantages(rewards) == [0.0] * len(rewards)


@given(st.lists(REWARD, min_size=2, max_size=12))
def test_advantages_sum_to_zero_and_keep_the_order(rewards: list[float]) -> None:
    found = advantages(rewards)
    assert math.fsum(found) == pytest.approx(0, abs=1e-6)
    by_reward = [a for _, a in sorted(zip(rewards, found, strict=True))]
    assert by_reward == sorted(found)


@pytest.mark.parametrize(("reward", "is_correct"), [(1, True), (1 - 1e-12, True), (0.999, False)])
def test_correct_is_full_marks_up_to_rounding(reward: float, is_correct: bool) -> None:
    assert correct(reward) is is_correct
