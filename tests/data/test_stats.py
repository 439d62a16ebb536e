import pytest

from grpo_practice.data.stats import Lengths, kind, stats
from grpo_practice.types import Sample


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, "missing"), (4, "integer"), ("4", "integer"), ("-12", "integer"),
        ("1,234", "integer"), ("007", "integer"), ("$5$", "integer"), (0.5, "decimal"),
        ("0.5", "decimal"), ("1,234.5", "decimal"), (".5", "decimal"), ("50%", "decimal"),
        ("1e-3", "decimal"), (True, "truth"), (["a", "b"], "list"), ("B", "choice letter"),
        ("(c)", "choice letter"), ("D.", "choice letter"), (r"\frac{1}{2}", "expression"),
        ("1/2", "expression"), ("[0, 1]", "expression"), ("x = 2", "expression"),
        (r"2\sqrt{3}", "expression"), ("sqrt(2)", "expression"), ("x^2 + y^2", "expression"),
        ("Paris", "text"), ("about 5", "text"), ("K", "text"), ("x", "text"), ("", "text"),
        ("The answer is 4 because 2+2=4", "text"), ("1" + "+1" * 60, "text"), ("%", "text"),
    ],
)  # fmt: skip
def test_answers_are_told_apart(answer: object, expected: str) -> None:
    assert kind(answer) == expected  # type: ignore[arg-type]


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
