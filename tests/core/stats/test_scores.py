import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.stats import (
    Question,
    Score,
    by_source,
    pass_at_k,
    pass_hat_k,
    score,
)
from tests.core.stats.questions import binary, tally


def test_a_failure_is_never_counted_as_zero() -> None:
    result = score(tally([1.0, None, 0.5], [None, None]), 3)
    assert result.mean == 0.75
    assert (result.questions, result.questions_scored) == (2, 1)
    assert (result.planned, result.scored, result.correct, result.coverage) == (5, 2, 1, 0.4)


def test_each_question_weighs_the_same_however_many_of_its_rollouts_are_scored() -> None:
    assert score(tally([1, 1, 1, 1], [0, None, None, None], [0.5]), 4).mean == 0.5


def test_nothing_scored_is_no_score_not_zero() -> None:
    result = score(tally([None, None]), 2)
    assert (result.mean, result.coverage, result.pass_at, result.questions_at_k) == (None, 0, {}, 0)


# Pass@k


def by_enumeration(n: int, c: int, k: int, rule: Callable[[list[bool]], bool]) -> float:
    right = [i < c for i in range(n)]
    return fmean(rule([right[i] for i in chosen]) for chosen in combinations(range(n), k))


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_what_all_subsets_say(n: int) -> None:
    for k in range(1, n + 1):
        for c in range(n + 1):
            assert pass_at_k(n, c, k) == pytest.approx(by_enumeration(n, c, k, any), abs=1e-12)
            assert pass_hat_k(n, c, k) == pytest.approx(by_enumeration(n, c, k, all), abs=1e-12)


def test_pass_at_k_is_exact_for_large_n() -> None:
    exact = 1 - math.comb(9_990, 512) / math.comb(10_000, 512)
    assert pass_at_k(10_000, 10, 512) == pytest.approx(exact, rel=1e-9)
    assert pass_hat_k(10_000, 9_990, 512) == pytest.approx(1 - exact, rel=1e-9)


COUNTS = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@given(COUNTS)
def test_pass_at_k_rises_and_pass_hat_k_falls_with_k(counts: tuple[int, int]) -> None:
    n, c = counts
    up = [pass_at_k(n, c, k) for k in range(1, n + 1)]
    down = [pass_hat_k(n, c, k) for k in range(1, n + 1)]
    assert all(a <= b + 1e-12 for a, b in pairwise(up))
    assert all(a >= b - 1e-12 for a, b in pairwise(down))
    assert up[-1] == (c > 0)
    assert down[-1] == (c == n)


@given(st.integers(1, 9), st.data())
def test_pass_at_1_is_the_mean_of_binary_rewards(k: int, data: st.DataObject) -> None:
    right = data.draw(st.lists(st.integers(0, k), min_size=1, max_size=20))
    result = score(binary(np.array(right), k), k)
    assert result.pass_at[1] == pytest.approx(result.mean)
    assert result.pass_hat[1] == pytest.approx(result.mean)


def test_pass_at_counts_only_questions_with_enough_scored() -> None:
    result = score(tally([1, 0, 0, 0, 0], [1, None, 1, 0, 1], [0, 0, None, None, None]), 5)
    assert result.questions_at_k == 1
    assert result.pass_at == pytest.approx(
        {1: fmean([0.2, 0.75, 0]), 2: fmean([0.4, 1, 0]), 4: fmean([0.8, 1]), 5: 1.0}
    )
    assert result.pass_hat == pytest.approx(
        {1: fmean([0.2, 0.75, 0]), 2: fmean([0, 0.5, 0]), 4: 0.0, 5: 0.0}
    )


@pytest.mark.parametrize(("k", "keys"), [(1, [1]), (3, [1, 2, 3]), (8, [1, 2, 4, 8])])
def test_pass_at_is_told_for_powers_of_two_and_k(k: int, keys: list[int]) -> None:
    result = score(tally([1.0] * k), k)
    assert list(result.pass_at) == list(result.pass_hat) == keys


def test_each_pass_at_has_an_interval_over_questions() -> None:
    right = np.arange(24) % 5
    result = score(binary(right, 4), 4)
    assert list(result.pass_at_ci95) == list(result.pass_hat_ci95) == [1, 2, 4]
    # Of binary rewards, Pass@1 is the mean: it has its interval.
    assert result.pass_at_ci95[1] == result.pass_hat_ci95[1] == pytest.approx(result.ci95)
    for means, found in (
        (result.pass_at, result.pass_at_ci95),
        (result.pass_hat, result.pass_hat_ci95),
    ):
        for j, ends in found.items():
            assert ends
            assert 0 <= ends[0] < means[j] < ends[1] <= 1
    # A question is right in 1 of 4 or more: whether any of 4 is, is one draw a question.
    passes = score(binary(np.minimum(right, 1), 1), 1)
    assert result.pass_at_ci95[4] == pytest.approx(passes.ci95)
    families = [replace(q, cluster=str(i // 8)) for i, q in enumerate(binary(right, 4))]
    wider = score(families, 4).pass_at_ci95[4]
    assert wider != pytest.approx(result.pass_at_ci95[4])
    assert score(binary(right[:1], 4), 4).pass_at_ci95 == {1: None, 2: None, 4: None}


def test_partial_marks_are_not_passes() -> None:
    result = score(tally([0.9, 0.9], [1.0, 0.5]), 2)
    assert result.mean == pytest.approx(0.825)
    assert result.pass_at == {1: 0.25, 2: 0.5}


def test_each_source_has_its_own_score() -> None:
    questions = [
        Question("a", 1, 1, 1, 1, 1, source="web"),
        Question("b", 2, 1, 1, 1, 2, source="math"),
        Question("c", 1, 0, 0, 0, 1, source="web"),
    ]
    found = by_source(questions, 1)
    assert list(found) == ["math", "web"]
    assert found["web"] == score([questions[0], questions[2]], 1)
    assert isinstance(found["math"], Score)
    assert found["math"].questions == 1
