"""Effects of experiences: against statsmodels, and where nothing can be told."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from grpo_practice.core.stats.effects import (
    FEWEST,
    MOST,
    Effects,
    best_within,
    design,
    effects,
    effects_in_each_case,
    halves,
    kept,
    planned_se,
)
from tests.late import Late

sm = Late("statsmodels.api")

Floats = NDArray[np.float64]


def drawn(
    true: Floats,
    *,
    seed: int = 0,
    questions: int = 60,
    k: int = 8,
    families: int = 1,
    missing: float = 0.0,
    noise: float = 0.3,
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Return rewards, what was shown, questions and clusters; some rollouts are missing."""
    rng, m = np.random.default_rng(seed), len(true)
    shown = design(m, questions, k, seed)
    base = rng.normal(0.5, 0.3, (questions, 1))
    rewards = base + shown @ true + rng.normal(0, noise, (questions, k))
    of = np.arange(questions).repeat(k)
    here = rng.random(questions * k) >= missing
    return rewards.ravel()[here], shown.reshape(-1, m)[here], of[here], of[here] // families


@pytest.mark.long
@pytest.mark.parametrize("families", [1, 4])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_effects_and_errors_are_those_of_statsmodels(families: int, missing: float) -> None:
    true = np.linspace(-0.05, 0.05, 11)
    y, x, of, cluster = drawn(true, families=families, missing=missing)
    found = effects(y, x, of, cluster)
    # One column for each question, in place of its means.
    questions = (of[:, None] == np.unique(of)).astype(float)
    fit = sm.OLS(y, np.column_stack([x.astype(float), questions])).fit(
        cov_type="cluster", cov_kwds={"groups": cluster, "use_correction": False}
    )
    groups, own = len(np.unique(cluster)), len(y) - questions.shape[1]
    larger = math.sqrt(groups / (groups - 1) * own / (own - 11))
    assert found.effect == pytest.approx(fit.params[:11], abs=1e-8)
    assert found.se == pytest.approx(fit.bse[:11] * larger, abs=1e-8)
    covariance = fit.cov_params()[:11, :11] * larger**2
    assert found.total == pytest.approx(fit.params[:11].sum(), abs=1e-8)
    assert found.total_se == pytest.approx(math.sqrt(covariance.sum()), abs=1e-8)
    assert (found.rollouts, found.clusters) == (len(y), groups)


def test_a_question_with_one_rollout_tells_nothing() -> None:
    y, x, of, cluster = drawn(np.array([0.1, -0.1, 0.0]), questions=30)
    more = (
        np.append(y, 9.0),
        np.vstack([x, [True, False, True]]),
        np.append(of, 99),
        np.append(cluster, 99),
    )
    one, other = effects(y, x, of, cluster), effects(*more)
    assert other.effect == pytest.approx(one.effect)
    assert other.rollouts == one.rollouts
    assert other.clusters == one.clusters


def test_experiences_always_shown_together_are_not_told_apart() -> None:
    y, x, of, cluster = drawn(np.array([0.1, 0.1, -0.1]))
    x = x.copy()
    x[:, 1] = x[:, 0]
    found = effects(y, x, of, cluster)
    assert found.known.tolist() == [False, False, True]
    assert np.isnan(found.p_harm[:2]).all()
    assert kept(found) == [0, 1]  # what is not known to do harm stays
    assert found.total == pytest.approx(0.1 - 0.1, abs=0.1)


def test_fewer_pairs_than_experiences_tell_none() -> None:
    found = effects(*drawn(np.zeros(20), questions=3, k=2))
    assert not found.known.any()
    assert math.isnan(found.total)


@pytest.mark.parametrize("families", [1, 60])
def test_equal_rewards_or_one_family_tell_none(families: int) -> None:
    y, x, of, cluster = drawn(np.zeros(5), families=families)
    found = effects(y if families > 1 else np.ones_like(y), x, of, cluster)
    assert not found.known.any()
    assert found.rollouts == 480


def test_no_rollouts_tell_none() -> None:
    nothing = np.zeros(0, np.int64)
    found = effects(np.zeros(0), np.zeros((0, 4), np.bool_), nothing, nothing)
    assert not found.known.any()
    assert found.rollouts == 0


@pytest.mark.parametrize(("m", "rows"), [(2, 16), (15, 16), (16, 32), (31, 32), (63, 64)])
def test_no_main_effect_is_mixed_up_with_a_pair(m: int, rows: int) -> None:
    shown = halves(m)
    assert shown.shape == (rows, m)
    # Rows alone, too: the complement is always the later one of a pair.
    assert (shown.sum(axis=0) == rows // 2).all()
    sign = np.where(np.vstack([shown, ~shown]), 1, -1)
    assert not sign.sum(axis=0).any()
    assert (sign.T @ sign == 2 * rows * np.eye(m)).all()
    for i, j in combinations(range(min(m, 20)), 2):
        assert not (sign.T @ (sign[:, i] * sign[:, j])).any()


@given(
    m=st.integers(FEWEST, MOST),
    n=st.integers(1, 80),
    pairs=st.integers(1, 4),
    seed=st.integers(0, 2**40),
)
def test_attempts_are_pairs_and_halves_are_dealt_evenly(
    m: int, n: int, pairs: int, seed: int
) -> None:
    shown = design(m, n, 2 * pairs, seed)
    assert (shown[:, ::2] != shown[:, 1::2]).all()
    grown = design(m, n + 7, 2 * pairs + 2, seed)
    assert (grown[:n, : 2 * pairs] == shown).all()
    rows = halves(m)
    place = {row.tobytes(): 0 for row in rows}
    if len(place) == len(rows):
        for pair in range(pairs):
            dealt = dict.fromkeys(place, 0)
            for row in shown[:, 2 * pair]:
                dealt[row.tobytes()] += 1
            assert max(dealt.values()) - min(dealt.values()) <= 1


def test_another_seed_deals_otherwise() -> None:
    assert (design(20, 50, 8, 1) != design(20, 50, 8, 2)).any()


@pytest.mark.parametrize(("m", "k"), [(1, 8), (64, 8), (20, 7), (20, 0)])
def test_what_has_no_design_is_refused(m: int, k: int) -> None:
    with pytest.raises(ValueError, match="have no design"):
        design(m, 10, k, 0)


@pytest.mark.long_after(4)
@pytest.mark.parametrize(
    ("omega", "share"), [(0.0, 1.0), (0.15, 1.0), (0.15, 0.1)], ids=["alike", "differ", "topics"]
)
@pytest.mark.parametrize(("m", "questions", "k"), [(20, 200, 8), (10, 60, 8), (8, 300, 2)])
def test_the_planned_error_is_the_one_that_is_found(
    m: int, questions: int, k: int, omega: float, share: float
) -> None:
    """An effect differs between questions, or moves a share of them, by the same variance."""
    errors, estimates = list[Floats](), list[Floats]()
    for seed in range(30):
        y, x, of, cluster = drawn(np.zeros(m), seed=seed, questions=questions, k=k, noise=0.374)
        rng = np.random.default_rng([seed, 1])
        size = omega / math.sqrt(share)
        moves = rng.normal(0, size, (questions, m)) * (rng.random((questions, m)) < share)
        found = effects(y + (x * moves[of]).sum(axis=1), x, of, cluster)
        errors.append(found.se)
        estimates.append(found.effect)
    planned = planned_se(0.374**2, omega**2, m, questions, k)
    assert np.sqrt(np.square(errors).mean()) == pytest.approx(planned, rel=0.05)
    assert np.std(estimates) == pytest.approx(planned, rel=0.12)


def test_failures_of_wrong_answers_make_no_supported_effect() -> None:
    """The first of 10 experiences without effect makes 30 % of the wrong answers fail."""
    claimed = supported = 0
    for seed in range(40):
        rng, shown = np.random.default_rng(seed), design(10, 150, 8, seed)
        right = rng.random((150, 8)) < rng.random((150, 1))
        fails = ~right & shown[..., 0] & (rng.random((150, 8)) < 0.3)
        of = np.arange(150).repeat(8)
        y = np.where(fails, np.nan, right)
        scored, as_0, as_1 = effects_in_each_case(y.ravel(), shown.reshape(-1, 10), of, of)
        assert scored.rollouts == (~fails).sum()
        assert as_0.rollouts == as_1.rollouts == 1_200
        claimed += int(scored.low[0] > 0)
        supported += int(min(scored.low[0], as_0.low[0], as_1.low[0]) > 0)
    assert claimed > 15
    assert supported <= 3


def test_without_failures_there_is_one_case() -> None:
    y, x, of, cluster = drawn(np.array([0.1, 0.0, 0.0]))
    (found,) = effects_in_each_case(y, x, of, cluster)
    assert found.effect == pytest.approx(effects(y, x, of, cluster).effect)


def _library(true: list[float], seed: int) -> Effects:
    return effects(*drawn(np.array(true), seed=seed, questions=200, noise=math.sqrt(0.14)))


def test_harm_stands_out_and_what_is_expected_lies_between_estimate_and_mean() -> None:
    found = _library([0.03] * 10 + [-0.12], 1)
    assert found.p_harm.argmax() == 10
    assert found.p_harm[10] > 0.99
    middle = np.median(found.effect)
    outer = np.abs(found.effect - middle)
    assert (np.abs(found.expected - middle)[outer > 0.02] < outer[outer > 0.02]).all()
    assert 10 not in kept(found)


def test_a_library_without_any_effect_is_not_condemned_as_one() -> None:
    # With the mean taken as known, P(harm) of all 20 is near 1 or near 0 in most worlds.
    sure = [np.mean(_library([0.0] * 20, seed).p_harm > 0.95) for seed in range(40)]
    assert np.mean(sure) < 0.06


@pytest.mark.long
@given(
    entries=st.lists(
        st.tuples(st.floats(-0.1, 0.1), st.integers(1, 60)),
        min_size=1,
        max_size=9,
    ),
    room=st.integers(1, 300),
)
def test_the_choice_is_the_best_of_all_that_fit(
    entries: list[tuple[float, int]], room: int
) -> None:
    worth, sizes = [w for w, _ in entries], [s for _, s in entries]
    if min(sizes) > room:
        with pytest.raises(ValueError, match="there is room for only"):
            best_within(worth, sizes, room)
        return
    chosen = best_within(worth, sizes, room)
    if sum(sizes) <= room:
        assert chosen == [*range(len(sizes))]
        return
    parts = [
        [j for j, taken in enumerate(part) if taken]
        for part in product((0, 1), repeat=len(sizes))
        if any(part)
    ]
    best = max(sum(worth[j] for j in part) for part in parts if sum(sizes[j] for j in part) <= room)
    assert chosen
    assert sum(sizes[j] for j in chosen) <= room
    assert sum(worth[j] for j in chosen) == pytest.approx(best, abs=1e-6)
