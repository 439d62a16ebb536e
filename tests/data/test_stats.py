import pytest

from grpo_practice.data.stats import Lengths, kind, stats
from grpo_practice.types import Answer, Sample

ANSWERS: dict[str, list[Answer]] = {
    "missing": [None],
    "truth": [True],
    "list": [["a", "b"]],
    "integer": [4, "4", "-12", "1,234", "007", "$5$"],
    "decimal": [0.5, "0.5", "1,234.5", ".5", "50%", "1e-3"],
    "choice letter": ["B", "(c)", "D."],
    "expression": [
        r"\frac{1}{2}", "1/2", "[0, 1]", "x = 2", r"2\sqrt{3}", "sqrt(2)", "x^2 + y^2",
    ],
    "text": [
        "Paris", "about 5", "K", "x", "", "%", "The answer is 4 because 2+2=4", "1" + "+1" * 60,
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_told_apart(name: str) -> None:
    assert {kind(answer) for answer in ANSWERS[name]} == {name}


def test_lengths_are_of_rows_that_are_there() -> None:
    found = stats([Sample("x" * n) for n in range(1, 101)])
    assert found.question_chars == Lengths(1, 50, 96, 100)
    assert found.question_tokens == Lengths(1, 13, 24, 25)
    assert found.answer_chars is None
    assert stats([Sample("ab", "c")]).question_chars == Lengths(2, 2, 2, 2)


def test_repeats_and_contradictions_are_counted() -> None:
    rows = [
        Sample("a", "1"), Sample("a", "1"), Sample(" A", "2"), Sample("b", "1"),
        Sample("B", "1"), Sample("c"), Sample("C", "9"),
    ]  # fmt: skip
    found = stats(rows)
    assert (found.rows, found.questions) == (7, 3)
    assert (found.repeated, found.repeated_folded) == (1, 4)
    assert found.contradicted == 1
    assert found.answers == {"integer": 6, "missing": 1}


def test_sources_levels_and_clusters_are_counted_the_commonest_first() -> None:
    rows = [
        Sample("a", source="y", level="1", cluster="k"), Sample("b", source="x", cluster="k"),
        Sample("c", source="x"), Sample("d"),
    ]  # fmt: skip
    found = stats(rows)
    assert list(found.sources.items()) == [("x", 2), ("y", 1)]
    assert (found.levels, found.clusters) == ({"1": 1}, 1)
