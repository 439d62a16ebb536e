import pytest

from grpo_practice.core.text import strip_think
from grpo_practice.verify.answers import (
    StatedAnswer,
    gold_texts,
    last_box,
    last_line,
    read_answer,
)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a<think>b</think>c", "ac"),
        ("<think>a</think>b<think>c</think>d", "bd"),
        ("<think>a <think> b</think>c", "c"),
        ("began in the prompt</think>c", "c"),
        ("a<think>b</think>c</think>d", "d"),
        ("<think>never ends", None),
        ("a<think>b</think>c<think>d", None),
        ("no tags", "no tags"),
    ],
)
def test_thinking_is_taken_out_and_an_open_one_leaves_no_answer(
    text: str, left: str | None
) -> None:
    assert strip_think(text) == left


def test_the_last_closed_box_that_holds_something_is_the_answer() -> None:
    assert last_box(r"\boxed{1} \boxed{\frac{1}{2}} \boxed{} \boxed{9") == r"\frac{1}{2}"
    assert last_box(r"\boxed{\{1,2\}}") == r"\{1,2\}"
    assert last_box(r"\boxed{a = \boxed{b}}") == "b"
    assert last_box(r"<think>\boxed{1}</think>none") is None


def test_boxes_are_kept_in_order_for_golds_of_several_values() -> None:
    assert read_answer(r"\boxed{3} and \boxed{5}") == StatedAnswer("5", ("3", "5"))
    assert read_answer(r"\boxed{3} and \boxed{x = \boxed{5}}") == StatedAnswer("5", ("3", "5"))


@pytest.mark.parametrize("response", ["", "  \n ", "<think>5", r"\boxed{5", "We\ncannot tell."])
def test_a_response_without_an_answer_has_a_reason(response: str) -> None:
    found = read_answer(response)
    assert isinstance(found, str)
    assert found.startswith("no answer: ")


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ("It takes 3 + 4 = 7.", "7"),
        ("He pays $18 and gets $2 back", "$2"),
        ("the 2nd is $x+1$", "x+1"),
        ("the sum is $x$, from step 3", "3"),
        ("A: 18 dollars", "18"),
        ("#### 1,234", "1,234"),
        ("The answer is **(1, 2)**.", "(1, 2)"),
        ("Answer: 5\nChecked twice, in 2 ways.", "5"),
        ("between 2020 300 people", "300"),
    ],
)
def test_without_a_box_the_stated_answer_or_the_last_expression_is_read(
    response: str, said: str
) -> None:
    found = read_answer(response)
    assert isinstance(found, StatedAnswer)
    assert found.text == said


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" * 140_000,
        "{" * 1_000_000,
        pytest.param("<think>" * 140_000 + "</think>" * 140_000, marks=pytest.mark.long),
        "<think></think>" * 60_000,
        "$" * 1_000_000,
        "9" * 1_000_000,
        "1," * 500_000,
        r"\[" * 500_000,
        "(1,1" * 200_000,
        "a: " * 300_000,
        "-" * 1_000_000,
        "answer" * 160_000,
        "*" * 1_000_000 + "x",
    ],
    ids=lambda text: str(text[:8]),
)
def test_hostile_text_of_a_megabyte_is_read_in_linear_time(text: str) -> None:
    read_answer(text)  # a moment; with the square of the length, hours
    last_line(text)


def test_golds_are_spelled_as_text_and_lists_are_alternatives() -> None:
    assert gold_texts(None) == []
    assert gold_texts(0) == ["0"]
    assert gold_texts(False) == ["False"]
    assert gold_texts(1e-07) == ["0.0000001"]
    assert gold_texts(["a", ["b"], 2]) == ["a", "b", "2"]


@pytest.mark.parametrize("text", ["\\" * 50_000, "\\" * 49_990 + "boxed", "\\boxed" * 8_000])
def test_a_run_of_backslashes_is_read_in_linear_time(text: str) -> None:
    assert isinstance(read_answer(text), str)
