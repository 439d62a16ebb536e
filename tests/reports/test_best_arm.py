"""Which arm is named the best, from the verdicts on all pairs."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from grpo_practice.core.stats.paired import Verdict
from grpo_practice.reports.comparison import Arm, ComparisonReport, Contrast


def report(verdicts: dict[tuple[str, str], Verdict], **scores: float) -> ComparisonReport:
    """A comparison of arms with these scores."""
    arms = [
        cast(Arm, SimpleNamespace(run=name, named=name, score=SimpleNamespace(mean=score)))
        for name, score in scores.items()
    ]
    contrasts: list[Any] = [
        cast(Contrast, SimpleNamespace(baseline=a, arm=b, verdict=verdict))
        for (a, b), verdict in verdicts.items()
    ]
    return ComparisonReport(arms, contrasts, {}, each=True, by_arm=True)


def test_the_best_is_better_than_each_other_in_either_order() -> None:
    found = report(
        {("a", "b"): "better", ("a", "c"): "worse", ("b", "c"): "worse"}, a=0.5, b=0.9, c=0.1
    )
    assert found.best == "b"
    assert found.choice == "Best: b, which is better than each other arm"
    assert replace(found, each=False).best is replace(found, each=False).choice is None
    none = report(
        {("a", "b"): "none found", ("a", "c"): "worse", ("b", "c"): "too few"}, a=0.5, b=0.6, c=0.1
    )
    assert none.best is None
    assert none.choice == (
        "No arm is shown to be the best: b has the highest score, but is not shown to be better"
        " than a and c"
    )
