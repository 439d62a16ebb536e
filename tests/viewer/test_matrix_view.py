"""Filters and texts of the matrix of questions by runs."""

from grpo_practice.reports.side_by_side import disagreed, said
from grpo_practice.store.queries.rollout_list import RolloutRow
from grpo_practice.viewer.matrix_view import MatrixRow


def test_a_filter_keeps_the_questions_that_it_names() -> None:
    rows = {
        "all right": MatrixRow(1, [1.0, 1.0, 0.5]),
        "all wrong": MatrixRow(2, [0.0, None, 0.0]),
        "one": MatrixRow(3, [0.0, 1.0, 0.4]),
        "two": MatrixRow(4, [1.0, 1.0, 0.0]),
    }
    kept = {
        only: [name for name, row in rows.items() if row.passes(only)]
        for only in ("all", "disagree", "all_right", "all_wrong", "only_1", "only_2")
    }
    assert kept == {
        "all": [*rows],
        "disagree": ["all right", "one", "two"],
        "all_right": ["all right"],
        "all_wrong": ["all wrong"],
        "only_1": [],
        "only_2": ["one"],
    }


def test_the_largest_disagreement_comes_first_and_one_arm_alone_is_none() -> None:
    assert disagreed([{1: 0.5, 2: 1.0, 3: 0.1}, {1: 0.0, 2: 0.0, 4: 1.0}, {3: 0.1}]) == [2, 1]


def test_equal_answers_are_counted() -> None:
    def row(extracted: str | None, head: str = "", error: str | None = None) -> RolloutRow:
        return RolloutRow(
            0, 0, 0, 1, 1, "q", head, extracted, 0.0, "ok", None, error, 1, 0, None, 0.0
        )

    rows = [row("7"), row(None, head="It is 7."), row("8"), row("8"), row(None)]
    assert said(rows, 20) == "8 \u00d72, 7, It is 7., (empty answer)"
