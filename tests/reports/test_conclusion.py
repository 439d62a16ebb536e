"""Which verdict a comparison gets in words."""

from typing import get_args

import pytest

from grpo_practice.core.stats.intervals import Interval
from grpo_practice.core.stats.paired import Verdict
from grpo_practice.reports.conclusion import Conclusion, change, headline


@pytest.mark.parametrize(
    ("verdict", "ci95", "said"),
    [
        ("better", (0.02, 0.3), "Better"),
        ("worse", (-0.3, -0.02), "Worse"),
        # The interval excludes a difference of 5 points.
        ("none found", (-0.05, 0.05), "No difference found"),
        ("none found", (-0.06, 0.01), "Not enough questions to tell"),
        ("none found", (-0.01, 0.06), "Not enough questions to tell"),
        ("too few", (-0.01, 0.01), "Not enough questions to tell"),
        ("missing", (0.02, 0.3), "Not enough scored answers to tell"),
    ],
)
def test_no_difference_is_found_only_with_enough_questions(
    verdict: Verdict, ci95: Interval, said: str
) -> None:
    assert headline(verdict, ci95) == said


def test_enough_depends_on_the_difference_that_matters() -> None:
    assert headline("none found", (-0.08, 0.08), 0.1) == "No difference found"
    assert headline("none found", (-0.08, 0.08), 0.02) == "Not enough questions to tell"


def test_each_verdict_has_its_words_and_only_a_difference_has_a_color() -> None:
    made = [Conclusion(headline(one, (-0.01, 0.01)), {}) for one in get_args(Verdict)]
    assert len({one.headline for one in made}) == 5
    assert [one.tone for one in made] == ["good", "bad", "", "", ""]


def test_a_change_of_less_than_one_percent_is_not_told() -> None:
    told = [change(ratio, "fewer") for ratio in (0.6, 1.004, 1.2, 2.04)]
    assert told == [" (40 % fewer)", "", " (20 % more)", " (2.0 times as many)"]
    assert change(3, "less") == " (3.0 times as much)"
