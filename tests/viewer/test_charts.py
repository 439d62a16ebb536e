from itertools import pairwise

import pytest

from grpo_practice.core.stats import Question, score
from grpo_practice.reports.known_scores import KnownScore
from grpo_practice.store.queries.pages import Life, LifeChange
from grpo_practice.viewer import charts
from grpo_practice.viewer.story import Measured


def measured(step: int, last: int, correct: int, of: int = 20) -> Measured:
    questions = [Question(str(n), 1, int(n < correct), float(n < correct)) for n in range(of)]
    return Measured(step, last, KnownScore("r", "d", score(questions, 1)))


def test_a_mark_stands_only_where_something_was_measured() -> None:
    found = charts.curve([measured(-1, -1, 8), measured(1, 3, 15)], [(0, 0.5), (3, 1.0)], 5)
    assert [(mark.name, mark.x) for mark in found.marks] == [
        ("start", 8.333),
        ("steps 1 to 3", 41.667),
    ]
    # The library stayed the same for three steps: one mark, and a line to where it ended.
    assert [mark.until for mark in found.marks] == [None, 75.0]
    assert [column.step for column in found.columns] == [0, 3]


@pytest.mark.parametrize(("mean", "y"), [(0.0, 192.0), (0.5, 100.0), (1.0, 8.0)])
def test_a_score_is_higher_up_the_better_it_is(mean: float, y: float) -> None:
    one = measured(0, 0, round(20 * mean))
    (mark,) = charts.curve([one], [], 1).marks
    assert mark.y == y
    assert mark.top <= mark.y <= mark.bottom
    assert mark.top >= 8
    assert mark.bottom <= 192


def test_columns_stand_on_the_ground() -> None:
    for column in charts.curve([], [(0, 0.0), (1, 0.25), (2, 1.0)], 3).columns:
        assert column.y + column.height == pytest.approx(192)


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 6, 30, 500])
def test_labels_do_not_crowd(steps: int) -> None:
    ticks = charts.curve([], [], steps).ticks
    assert len(ticks) <= 7
    assert ticks[0].text == "start"
    if steps:
        assert ticks[-1].text == str(steps - 1)
    apart = [b.x - a.x for a, b in pairwise(ticks)]
    assert all(gap > 0 for gap in apart)


def test_a_score_without_an_interval_is_a_point() -> None:
    assert charts.score_range(0.25, None) == charts.Axis(25, 25, 25)
    assert charts.score_range(0.25, (0.1, 0.5)) == charts.Axis(25, 10, 50)


def change(step: int, op: str) -> LifeChange:
    return LifeChange(step, op, None if op == "DELETE" else "text", "merge", None, ())


@pytest.mark.parametrize(
    ("life", "lane"),
    [
        (Life(1, None, (change(1, "ADD"),)), charts.Lane(25, 75, [], ended=False)),
        (Life(1, "x"), charts.Lane(0, 100, [], ended=False)),
        (
            Life(1, None, (change(0, "ADD"), change(1, "UPDATE"), change(2, "DELETE"))),
            charts.Lane(0, 75, [37.5], ended=True),
        ),
        (Life(1, None, (change(3, "ADD"), change(3, "DELETE"))), charts.Lane(75, 25, [], True)),
        (Life(1, "x", (change(0, "DELETE"),)), charts.Lane(0, 25, [], ended=True)),
    ],
)
def test_the_life_of_an_experience(life: Life, lane: charts.Lane) -> None:
    assert charts.lane(life, 4) == lane


def test_rewards_have_a_shade() -> None:
    values = [None, 0.0, 0.19, 0.2, 0.5, 0.99, 1.0]
    assert [charts.shade(value) for value in values] == [None, 0, 0, 1, 2, 4, 4]


def test_parts_of_the_largest() -> None:
    assert charts.parts([None, 0.0, 5.0, 10.0]) == [0, 0, 50, 100]
    assert charts.parts([None, 0.0]) == [0, 0]
    assert charts.parts([]) == []
