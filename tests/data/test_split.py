"""Parts without a question in common, whatever the rows look like; and samples that nest."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from grpo_practice.core.errors import DataError
from grpo_practice.core.text import folded
from grpo_practice.core.types import Sample
from grpo_practice.data import split as under_test
from grpo_practice.data.split import Part

SHARES = {"train": 0.8, "test": 0.2}


def plain(n: int) -> list[Sample]:
    return [Sample(f"question {i}", str(i)) for i in range(n)]


def split(
    rows: Sequence[Sample], shares: Mapping[str, float], **options: Any
) -> dict[str, list[Sample]]:
    parts = under_test.split(rows, shares, **options)
    assert all(len(part) == len(list(part)) for part in parts.values())
    return {name: list(part) for name, part in parts.items()}


def draw(rows: Sequence[Sample], n: int, *, seed: int) -> list[Sample]:
    return list(Part(rows, under_test.draw((row.sha for row in rows), n, seed=seed)))


def sizes(parts: dict[str, list[Sample]]) -> list[int]:
    return [len(part) for part in parts.values()]


@pytest.mark.parametrize(("n", "expected"), [(10, [8, 2]), (11, [9, 2]), (1_319, [1055, 264])])
def test_sizes_come_out_as_asked(n: int, expected: list[int]) -> None:
    assert sizes(split(plain(n), SHARES, seed=0)) == expected


def test_three_parts_keep_the_order_of_the_rows_and_lose_none() -> None:
    rows = plain(101)
    parts = split(rows, {"a": 0.5, "b": 0.3, "c": 0.2}, seed=3)
    assert sizes(parts) == [51, 30, 20]
    for part in parts.values():
        assert part == [row for row in rows if row in part]
    assert sorted(s.question for part in parts.values() for s in part) == sorted(
        s.question for s in rows
    )


def test_the_seed_decides_and_the_order_of_the_rows_does_not() -> None:
    rows = plain(200)
    shuffled = random.Random(5).sample(rows, len(rows))
    first, again, other = (
        {s.question for s in split(of, SHARES, seed=seed)["test"]}
        for of, seed in ((rows, 0), (shuffled, 0), (rows, 1))
    )
    assert first == again
    assert len(first & other) < 20  # of 40: about 8 by chance


def test_where_a_row_goes_is_no_matter_of_the_place_in_the_file() -> None:
    rows = plain(1_000)
    test = {s.question for s in split(rows, SHARES, seed=0)["test"]}
    places = [i for i, s in enumerate(rows) if s.question in test]
    assert 400 < sum(places) / len(places) < 600


def test_what_asks_the_same_stays_together() -> None:
    spelt = ("question {}", " Question\n{}", "QUESTION  {} ")
    rows = [Sample(spelt[i % 3].format(i // 3), str(i)) for i in range(300)]
    parts = split(rows, SHARES, seed=0)
    asked = [{folded(s.question) for s in part} for part in parts.values()]
    assert not asked[0] & asked[1]
    assert sizes(parts) == [240, 60]


def test_clusters_stay_together_also_through_a_question_in_common() -> None:
    rows = [
        Sample("a", cluster="1"), Sample("b", cluster="1"), Sample("B ", cluster="2"),
        Sample("c", cluster="2"), *plain(16),
    ]  # fmt: skip
    for seed in range(10):
        parts = split(rows, {"x": 0.5, "y": 0.5}, seed=seed)
        held = [sum(s.cluster is not None for s in part) for part in parts.values()]
        assert sorted(held) == [0, 4]


def test_each_stratum_is_divided_alike() -> None:
    rows = [Sample(f"q{i}", source="big" if i % 10 else "small") for i in range(100)]
    parts = split(rows, SHARES, seed=0, stratum=lambda s: s.source)
    assert [sum(s.source == "small" for s in part) for part in parts.values()] == [8, 2]
    assert sizes(parts) == [80, 20]


def test_small_strata_add_up_to_the_shares() -> None:
    rows = [Sample(f"q{i}", level=str(i // 2)) for i in range(40)]
    assert sizes(split(rows, SHARES, seed=0, stratum=lambda s: s.level or "")) == [32, 8]


def test_kept_questions_stay_and_new_ones_fill_up() -> None:
    old = plain(50)
    before = split(old, SHARES, seed=0)
    rows = [*[Sample(f"new {i}") for i in range(50)], *old]
    after = split(rows, SHARES, seed=9, kept=before)
    for name, part in before.items():
        assert {s.question for s in part} <= {s.question for s in after[name]}
    assert sizes(after) == [80, 20]
    afresh = split(rows, SHARES, seed=9)
    assert {s.question for s in before["test"]} - {s.question for s in afresh["test"]}


def test_a_row_that_ties_two_parts_is_refused() -> None:
    kept = {"train": [Sample("a", cluster="1")], "test": [Sample("b", cluster="2")]}
    rows = [Sample("a", cluster="1"), Sample("b", cluster="2"), Sample("a", cluster="2")]
    with pytest.raises(
        DataError, match="row 1 and rows like it are already in both 'test' and 'train'"
    ):
        split(rows, SHARES, seed=0, kept=kept)


def test_a_part_without_a_row_is_refused() -> None:
    with pytest.raises(DataError, match="nothing is left for 'test'"):
        split([Sample("same"), Sample(" Same")], SHARES, seed=0)


def test_a_sample_is_drawn_without_repeats_in_order_and_nests() -> None:
    rows = plain(100)
    ten, fifty, other = draw(rows, 10, seed=0), draw(rows, 50, seed=0), draw(rows, 10, seed=1)
    assert len({s.question for s in fifty}) == 50
    assert fifty == [row for row in rows if row in fifty]
    assert all(s in fifty for s in ten)
    assert ten != other
    assert ten == [s for s in rows if s in draw(rows[::-1], 10, seed=0)]
    assert draw(rows, 100, seed=0) == rows


def test_equal_rows_are_drawn_one_by_one() -> None:
    assert len(draw([Sample("a")] * 5, 3, seed=0)) == 3
    with pytest.raises(DataError, match="6 rows are requested, but there are only 5"):
        draw([Sample("a")] * 5, 6, seed=0)


def test_a_seed_divides_and_draws_the_same_on_every_machine() -> None:
    spelt = ("question {}? ", "Question  {}?", "Question  {}?")
    rows = [
        Sample(
            spelt[i % 3].format(i // 2),
            str(i),
            source="ab"[i % 2],
            cluster=None if i % 5 else str(i // 7),
        )
        for i in range(40)
    ]
    shares = {"x": 0.5, "y": 0.3, "z": 0.2}
    parts = split(rows, shares, seed=4, stratum=lambda s: s.source)
    y, z = (" ".join(str(s.answer) for s in parts[name]) for name in "yz")
    assert (y, z) == ("14 15 16 17 18 19 20 21 22 23 32 33", "2 3 24 25 26 27 34 35")
    thrice = [Sample(f"q{i // 3}") for i in range(30)]
    drawn = " ".join(s.question for s in draw(thrice, 9, seed=2))
    assert drawn == "q0 q3 q4 q6 q6 q7 q7 q8 q8"
