"""Where a paired difference could say something false: uneven families, and what is missing."""

from collections.abc import Sequence

import numpy as np
import pytest

from grpo_practice.core.stats import Question
from grpo_practice.core.stats.paired import ALPHA, FEWEST, effective_clusters, paired_t, verdicts
from tests.core.stats.test_paired import arm, compared, question


def false_verdicts(sizes: Sequence[int], seeds: int = 4_000) -> float:
    """Share of verdicts where families differ by 13 points up or down, and by 0 on average."""
    rng, k, families = np.random.default_rng(1), 5, len(sizes)
    p = rng.uniform(0.15, 0.85, (seeds, families))
    b = p + 0.13 * rng.choice([-1, 1], (seeds, families))
    cluster = np.repeat(np.arange(families), sizes)
    d = (rng.binomial(k, b[:, cluster]) - rng.binomial(k, p[:, cluster])) / k
    judged = round(effective_clusters(np.array(sizes))) >= FEWEST
    return float((paired_t(d, cluster).p < ALPHA).mean()) * judged


@pytest.mark.long_after(3)
@pytest.mark.parametrize(
    "sizes",
    [
        [5] * 20,
        [30] * 10,
        [50] + [1] * 9,
        [30] + [1] * 70,
        [20] + [1] * 80,
        [100] + [1] * 100,
        [40] * 3 + [1] * 20,
        [10] * 5 + [1] * 30,
    ],
    ids=lambda sizes: f"{len(sizes)} of {sizes[0]} to {sizes[-1]}",
)
def test_one_large_family_is_not_many_questions(sizes: list[int]) -> None:
    assert false_verdicts(sizes) < 0.10  # counted by their number, up to 0.86


def test_uneven_families_are_as_few_as_they_tell() -> None:
    def verdict(*sizes: int) -> str:
        family = [f"f{i}" for i, size in enumerate(sizes) for _ in range(size)]
        a = [question(i, [0.0], of) for i, of in enumerate(family)]
        found = compared(a, [question(i, [1.0], of) for i, of in enumerate(family)])
        assert found.clusters == len(sizes)
        return verdicts([found])[0]

    assert verdict(*[5] * 9, 4) == "better"
    assert verdict(*[5] * 9) == "too few"
    assert verdict(50, *[1] * 9) == "too few"
    assert verdict(100, *[1] * 100) == "too few"
    assert verdict(20, *[1] * 80) == "better"


@pytest.mark.parametrize("seed", range(20))
def test_p_and_interval_never_disagree_in_uneven_families(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(12), rng.integers(1, 40, 12))
    found = paired_t(rng.choice([-0.5, 0.5, 1], (500, len(cluster))), cluster)
    assert ((found.p < 0.05) == ((found.low > 0) | (found.high < 0))).all()


def test_more_attempts_than_planned_hide_none_that_is_missing() -> None:
    a = arm(*[[0.0, 0.0]] * 20)
    b = arm(*[[1, None]] * 10, *[[1.0, 1, 0]] * 10)
    more = [Question(q.key, q.n, q.c, q.total, q.total_sq, planned=2) for q in b[10:]]
    found = compared(a, [*b[:10], *more])
    assert found.missing == 10
    assert found.worst is not None
    assert found.worst.mean == pytest.approx((10 * 0.5 + 10 * 2 / 3) / 20)


@pytest.mark.parametrize("swap", [False, True])
def test_a_family_is_known_from_either_arm(swap: bool) -> None:
    # What was never played has no tally, and with it no name of its family.
    a = [
        question(i, [0, 1], f"f{i // 5}") if i % 5 else Question(str(i), planned=2)
        for i in range(60)
    ]
    b = [question(i, [1, 1], f"f{i // 5}") for i in range(60)]
    found = compared(b, a) if swap else compared(a, b)
    whole = [question(i, [0, 1] if i % 5 else [0.0, 0.0], f"f{i // 5}") for i in range(60)]
    known = compared(b, whole) if swap else compared(whole, b)
    case = found.best if not swap else found.worst
    assert case is not None
    assert case.p == pytest.approx(known.p)
    assert case.ci95 == pytest.approx(known.ci95)


def test_a_question_asked_twice_keeps_its_family() -> None:
    again = Question("0", planned=1).plus(question(0, [1], "f"))
    assert (again.cluster, again.planned) == ("f", 2)


def test_a_best_case_in_which_nothing_is_found_overturns_too() -> None:
    # One answer that failed is worth more than all others together, and widens the interval.
    a = arm(*[[0.0]] * 10)
    found = compared(a, arm(*[[0.1 + i / 1000] for i in range(9)], [None]))
    assert found.worst is not None
    assert found.best is not None
    assert found.worst.p < 0.001
    assert found.best.p > 0.05
    b = arm(*[[0.11 + i / 1000] for i in range(10)], [None])
    assert verdicts([compared(arm(*[[0.0]] * 11), b)]) == ["better"]
    few = compared(arm(*[[0.0]] * 11), arm(*[[0.08 + i / 1000] for i in range(10)], [None]))
    assert few.best is not None
    assert few.best.p > 0.05
    assert verdicts([few]) == ["missing"]
