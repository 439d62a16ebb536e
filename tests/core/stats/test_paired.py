"""The paired difference: against statsmodels, and where it must not say more than is known."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.stats import Question
from grpo_practice.core.stats.paired import (
    ALPHA,
    FEWEST,
    Difference,
    Look,
    adjusted,
    difference,
    holm,
    paired_t,
    verdicts,
)
from tests.late import Late

sm = Late("statsmodels.api")
stats = Late("scipy.stats")
multitest = Late("statsmodels.stats.multitest")


def question(
    key: int | str, rewards: Sequence[float | None], cluster: str | None = None
) -> Question:
    scored = [r for r in rewards if r is not None]
    return Question(
        str(key),
        n=len(scored),
        c=sum(r == 1 for r in scored),
        total=math.fsum(scored),
        total_sq=math.fsum(r * r for r in scored),
        planned=len(rewards),
        cluster=cluster,
    )


def arm(*rewards: Sequence[float | None]) -> list[Question]:
    return [question(key, of) for key, of in enumerate(rewards)]


def compared(a: Sequence[Question], b: Sequence[Question]) -> Difference:
    found = difference(a, b)
    assert found is not None
    return found


@pytest.mark.long
@pytest.mark.parametrize("families", [1, 5])
@pytest.mark.parametrize("seed", range(5))
def test_error_interval_and_p_are_those_of_statsmodels(seed: int, families: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = np.arange(60) // families
    d = rng.choice([-1, -0.5, 0, 0.25, 1], 60) + rng.normal(0, 0.2, 60 // families)[cluster] / 2
    found = paired_t(d, cluster)
    kind: dict[str, Any] = {"groups": cluster, "df_correction": True}
    fit = sm.OLS(d, np.ones(60)).fit(cov_type="cluster", cov_kwds=kind, use_t=True)
    # Theirs is multiplied by (n - 1) / (n - 1), since one mean is fitted, and by C / (C - 1).
    assert float(found.se) == pytest.approx(float(fit.bse[0]), rel=1e-9)
    assert float(found.p) == pytest.approx(float(fit.pvalues[0]), rel=1e-9)
    ends = [max(-1, fit.conf_int()[0][0]), min(1, fit.conf_int()[0][1])]
    assert [float(found.low), float(found.high)] == pytest.approx(ends, rel=1e-9)


def test_without_families_it_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((2, 40, 4)).round(1)
    found = compared(arm(*a.tolist()), arm(*b.tolist()))
    assert found.p == pytest.approx(stats.ttest_rel(b.mean(axis=1), a.mean(axis=1)).pvalue)


@pytest.mark.long
@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=8))
def test_holm_is_that_of_statsmodels(ps: list[float]) -> None:
    assert holm(ps) == pytest.approx(multitest.multipletests(ps, method="holm")[1], rel=1e-9)


def test_all_comparisons_on_the_same_questions_share_five_percent() -> None:
    levels = [Look(number).level for number in range(1, 1000)]
    assert levels[:4] == pytest.approx([0.04, 0.005, 0.01 / 6, 0.01 / 12])
    assert 0.0499 < sum(levels) < ALPHA


def test_contrasts_of_one_comparison_share_its_level_also_where_one_is_not_shown() -> None:
    ps = [0.01, 0.02, 0.003]
    first, second = Look(1, together=2), Look(2)
    assert adjusted(ps, [first, first, second]) == pytest.approx([0.025, 0.025, 0.03])
    assert adjusted(ps[1:], [first, second]) == pytest.approx([0.05, 0.03])


def test_the_first_comparison_finds_what_the_third_does_not() -> None:
    found = compared(arm(*[[0.5]] * 100), arm(*[[0.6]] * 62, *[[0.4]] * 38))
    assert Look(3).level < found.p < Look(1).level
    assert verdicts([found], [Look(1)]) == ["better"]
    assert verdicts([found], [Look(3)]) == ["none found"]


@given(
    st.integers(0, 2**31), st.sampled_from([2, 9, 10, 30]), st.sampled_from([0.0, 0.1, 0.5, 1.0])
)
def test_p_and_interval_never_disagree(seed: int, size: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    d = np.where(rng.random((50, size)) < share, rng.choice([-1, 0.25, 1], (50, size)), 0.25)
    found = paired_t(d, np.arange(size))
    outside = (found.low > 0) | (found.high < 0)
    sure = np.abs(found.p - 0.05) > 1e-12  # at 0.05 itself either may be rounded
    assert ((found.p < 0.05) == outside)[sure].all()
    assert (found.high > found.low).all()
    assert ((found.low <= found.mean + 1e-12) & (found.mean <= found.high + 1e-12)).all()


def test_equal_differences_have_no_zero_width() -> None:
    same = compared(arm(*[[1, 0]] * 30), arm(*[[0, 1]] * 30))
    assert (same.mean, same.se, same.p) == (0, 0, 1)
    assert same.ci95 == pytest.approx((-0.1157, 0.1157), abs=1e-4)
    all_up = compared(arm(*[[0.0]] * 10), arm(*[[1.0]] * 10))
    assert all_up.p == pytest.approx(2 * 0.5**10)  # that of the sign test
    assert all_up.ci95[0] > 0
    few = compared(arm(*[[0.0]] * 5), arm(*[[1.0]] * 5))
    assert few.p > 0.05
    assert few.ci95[0] < 0
    one = compared(arm([0.0]), arm([1.0]))
    assert one.ci95 == (-0.95, 1)
    assert one.p == 1


def test_families_count_as_one() -> None:
    rng = np.random.default_rng(3)
    rewards = rng.integers(0, 2, (8, 1)).repeat(5, axis=0).tolist()
    a = [question(i, [0.0], f"f{i // 5}") for i in range(40)]
    b = [question(i, of, f"f{i // 5}") for i, of in enumerate(rewards)]
    found = compared(a, b)
    assert found.clusters == 8 < FEWEST
    assert verdicts([found]) == ["too few"]
    alone = compared(arm(*[[0.0]] * 40), arm(*rewards))
    assert found.se > 2 * alone.se


def test_pairs_are_found_by_sample_and_a_question_asked_twice_is_one() -> None:
    a = [question("s1", [1, 0]), question("s2", [1, 1]), question("s1", [1, 1]), question("x", [0])]
    b = [question("s2", [0, 1]), question("s1", [0, 0]), question("y", [1])]
    found = compared(a, b)
    assert [(q.key, q.a, q.b) for q in found.questions] == [("s1", 0.75, 0), ("s2", 1, 0.5)]
    assert (found.up, found.down) == (0, 2)
    assert difference(a, [question("z", [1])]) is None
    assert difference([question("s", [None])], [question("s", [1])]) is None


def test_questions_that_cannot_be_scored_are_in_no_number() -> None:
    hidden = Question("s9", planned=4, unscorable=True)
    found = compared([*arm([1], [0]), hidden], [*arm([1], [1]), hidden])
    assert (len(found.questions), found.missing) == (2, 0)


def test_what_failed_is_no_zero_and_may_overturn_a_verdict() -> None:
    right, wrong = [1.0] * 4, [0.0] * 4
    a = arm(*[wrong] * 20, *[right] * 20)
    sure = compared(a, arm(*[right] * 30, *[wrong] * 10))
    assert (sure.worst, sure.best, sure.missing) == (None, None, 0)
    b = arm(*[[1, 1, 1, None]] * 12, *[wrong] * 8, *[right] * 20)
    found = compared(a, b)
    assert found.mean == pytest.approx(12 / 40)
    assert found.missing == 12
    assert found.worst is not None
    assert found.best is not None
    assert found.worst.mean == pytest.approx(12 * 0.75 / 40)
    assert found.best.mean == pytest.approx(12 / 40)
    assert verdicts([found]) == ["better"]
    lost = arm(*[wrong] * 20, *[right] * 12, *[[None] * 4] * 8)
    gone = compared(arm(*[wrong] * 12, *[[None] * 4] * 8, *[right] * 20), lost)
    assert len(gone.questions) == 24
    many = compared(arm(*[wrong] * 20, *[[0, None]] * 20), arm(*[[0, 1]] * 20, *[[0, None]] * 20))
    assert many.p < 0.001
    assert verdicts([many]) == ["missing"]


def test_the_verdict_follows_the_adjusted_p() -> None:
    rng = np.random.default_rng(0)
    a = arm(*[[0.0]] * 40)
    better = arm(*[[1.0]] * 7, *[[0.0]] * 33)  # p 0.006
    weak = arm(*[[1.0]] * 5, *[[0.0]] * 35)  # p 0.023
    none = arm(*rng.permuted([[0.0]] * 39 + [[1.0]], axis=0).tolist())
    found = [compared(a, b) for b in (better, weak, none, none)]
    assert found[1].p < 0.05
    assert verdicts([found[1]]) == ["better"]
    assert verdicts(found) == ["better", "none found", "none found", "none found"]
    worse = compared(better, a)
    assert verdicts([worse]) == ["worse"]
    assert worse.mean == -found[0].mean
