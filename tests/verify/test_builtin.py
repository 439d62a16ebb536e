# ruff: noqa: RUF001 - full-width signs are what some of these answers are written with
import asyncio
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import VerifyError
from grpo_practice.core.types import Sample
from grpo_practice.verify.builtin import choice, contains, exact, regex
from grpo_practice.verify.resolve import check_gold, resolve
from grpo_practice.verify.verifier import Verifier

FRUIT = {"options": ["apple", "Banana split", "cherry"]}


@pytest.mark.parametrize(
    ("response", "gold", "reward"),
    [
        ("Let me see.\n  New   York. ", "new york", 1),
        ("Answer: Paris", "Paris", 1),
        (r"It is \boxed{Paris}, sure.", "Paris", 1),
        ("Paris\nLondon", "Paris", 0),
        ("The U.S.", "U.S.", 0),
        ("Answer: U.S.", "U.S.", 1),
        ("<think>Paris</think>", "Paris", 0),
        ("b", ["a", "b"], 1),
        ("false", False, 1),
        ("", "x", 0),
    ],
)
def test_exact_takes_the_last_box_or_line(response: str, gold: Any, reward: int) -> None:
    verdict = exact(Sample("q", gold), response)
    assert verdict.reward == reward
    assert (verdict.critique is None) == (reward == 1)


def test_case_counts_only_where_it_is_asked_for() -> None:
    assert exact(Sample("q", "Paris"), "paris").reward == 1
    assert exact(Sample("q", "Paris"), "paris", case_sensitive=True).reward == 0
    assert contains(Sample("q", "Paris"), "in paris").reward == 1
    assert contains(Sample("q", "Paris"), "in paris", case_sensitive=True).reward == 0


@pytest.mark.parametrize(
    ("response", "gold", "reward"),
    [
        ("It is in Paris, France", "paris", 1),
        ("It is 42", "4", 0),
        ("It is 24", "4", 0),
        ("It is 4.", "4", 1),
        ("a+b", "+", 1),
        ("new\nyork", "New York", 1),
        ("<think>Paris</think>London", "Paris", 0),
        ("a.c", "abc", 0),
        ("abc", "a.c", 0),
    ],
)
def test_contains_looks_for_whole_words(response: str, gold: str, reward: int) -> None:
    assert contains(Sample("q", gold), response).reward == reward


@pytest.mark.parametrize(
    ("response", "gold", "reward"),
    [
        ("Answer: B", "B", 1),
        ("(A) is wrong, so the answer is (B).", "b", 1),
        ("The answer is A... no.\nThe answer is **C**, since A is not red.", "C", 1),
        (r"\boxed{\text{B}}", "(B)", 1),
        (r"\boxed{\textbf{(B)}}", "B. Banana split", 1),
        ("B) Banana split", "B", 1),
        ("banana split.", "B", 1),
        ("banana split", "Banana split", 1),
        ("c", "C", 1),
        ("Reasons.\n**B**\nDone, I hope", "B", 1),
        ("A banana is a fruit", "A", 0),
        ("The options are (A) apple, (B) Banana split\nI cannot say", "B", 0),
        ("The answer is B.\nThere is no answer: Z.", "B", 1),
        ("Answer: D", "D", 0),
        ("E.g. this", "A", 0),
        ("", "A", 0),
    ],
)
def test_choice_reads_the_option_that_is_stated(response: str, gold: str, reward: int) -> None:
    sample = Sample("q", gold, meta=FRUIT)
    assert choice(sample, response).reward == reward


def test_choice_needs_no_options_for_letters_and_takes_named_ones() -> None:
    assert choice(Sample("q", "D"), "Answer: D").reward == 1
    assert choice(Sample("q", "D"), "D) seven").reward == 1
    named = Sample("q", "yes", meta={"choices": {"x": "yes", "y": "no"}})
    assert choice(named, "Answer: X").reward == 1
    assert choice(named, "Answer: Y").extracted == "Y"


def test_a_gold_that_is_no_option_is_said_before_any_call() -> None:
    function = resolve("choice", {}, None, Path())
    assert check_gold(function, Sample("q", "apple", meta=FRUIT)) is None
    assert "neither A, B, C" in (check_gold(function, Sample("q", "pear", meta=FRUIT)) or "")


def test_regex_compares_what_the_last_match_captures() -> None:
    sample = Sample("q", "yes")
    assert regex(sample, "V: no V: Yes", pattern=r"V: (\w+)").reward == 1
    assert regex(sample, "V: yes V: no", pattern=r"V: (\w+)").extracted == "no"
    assert regex(sample, "yes", pattern=r"yes|no").reward == 1
    assert regex(sample, "perhaps", pattern=r"yes|no").critique is not None


async def test_a_pattern_that_backtracks_for_ever_is_an_error_and_blocks_nothing() -> None:
    function = resolve("regex", {"pattern": "(a+)+$"}, 1.0, Path())
    async with Verifier(function) as verify:
        bait = asyncio.create_task(verify(Sample("q", "a"), "a" * 40 + "b", None))
        assert (await verify(Sample("q", "aa"), "b aa", None)).reward == 1
        with pytest.raises(VerifyError, match="took longer than 1 s"):
            await bait


OWN_FORM = [
    '"x"',
    "'tis",
    "`a`",
    "__init__",
    "*",
    "a\n  b",
    "Answer: 5",
    "the answer is 3",
    "5.",
    "$5",
]


@pytest.mark.parametrize("gold", OWN_FORM)
def test_exact_takes_a_gold_for_itself(gold: str) -> None:
    for response in (gold, f"Let me see.\n\n{gold}"):
        assert exact(Sample("q", gold), response).reward == 1
    assert exact(Sample("q", gold), f"{gold}\nNo.").reward == 0
    assert exact(Sample("q", gold), f"not {gold}").reward == 0


def test_exact_takes_no_quotes_off_the_gold() -> None:
    assert exact(Sample("q", "__init__"), "init").reward == 0
    assert exact(Sample("q", "__init__"), "**`__init__`**").reward == 1


@pytest.mark.parametrize(
    ("response", "gold", "reward"),
    [
        ("答案是北京。", "北京", 1),
        ("答案是Paris。", "Paris", 1),
        ("서울은 수도입니다", "서울", 1),
        ("กรุงเทพเป็นเมือง", "เมือง", 1),
        ("答案是42。", "42", 1),
        ("答案是142。", "42", 0),
        ("cafe\u0301", "caf\u00e9", 1),
        ("cafés", "café", 0),
        ("It is 4.2", "4", 0),
        ("It is 1.4", "4", 0),
        ("It is -4.", "4", 0),
        ("It is \u22124.", "4", 0),
        ("It is 4,000", "4", 0),
        ("It is 4,000", "000", 0),
        ("It is 4.", "4", 1),
        ("It is 4, and no more", "4", 1),
        ("1,2,3,4", "4", 1),
        ("3-4", "4", 1),
        ("(3,4)", "3", 1),
    ],
)
def test_contains_takes_a_word_of_any_script_and_a_whole_number(
    response: str, gold: str, reward: int
) -> None:
    assert contains(Sample("q", gold), response).reward == reward


STATED_B = [
    "答案是B。", "答案：B", "所以答案是（B）", "故选B", "正解はB", "정답은 B입니다", "Ｂ",
    "La respuesta es B", "Die Antwort ist B", "Réponse : B", "Ответ: B",
    "[B]", "B!", "B,", "<answer>B</answer>", '{"answer": "B"}', "So it is B", "I choose **B**.",
    "不选A，选B", "选B，不选A",
]  # fmt: skip


@pytest.mark.parametrize("response", STATED_B)
def test_choice_reads_other_languages_and_dresses(response: str) -> None:
    for meta in ({}, FRUIT):
        assert choice(Sample("q", "B", meta=meta), response).reward == 1
        assert choice(Sample("q", "A", meta=meta), response).reward == 0


@pytest.mark.parametrize("response", ["答案：AC", "答案是A、C。", "答案是（A）和（C）"])
def test_choice_reads_several_options_in_chinese(response: str) -> None:
    assert choice(Sample("q", "A, C"), response).reward == 1
    assert choice(Sample("q", "A, B"), response).reward == 0


@pytest.mark.parametrize(
    "response", ["I do not know.", "A good answer is hard to find", "BAD", "不选B"]
)
def test_choice_takes_no_word_for_an_option(response: str) -> None:
    assert all(choice(Sample("q", letter), response).reward == 0 for letter in "ABD")
