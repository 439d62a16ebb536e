"""Golds in words, scored by `math`: the last line and the stated answer count as text."""

from pathlib import Path

import pytest

from grpo_practice.core.types import Sample
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier

RIGHT = [
    ("4:30 p.m.", "4:30 p.m."),
    ("4:30 p.m.", "The first takes 3 hours, the second 4.\n4:30 p.m."),
    ("4:30 p.m.", "We add 3 hours.\nSo it happens at 4:30 p.m."),
    ("4:30 p.m.", "So it happens at 4:30 pm."),
    ("4:30 PM", "We add 3 hours.\n\n**4:30 p.m.**\n"),
    ("4:30", "So it happens at 4:30 p.m."),
    ("3 p.m.", "It is 3 p.m."),
    ("10", "We leave at 10 a.m."),
    ("Canberra", "It has 3 letters a.\nCanberra"),
    ("Canberra", "It has 3 letters a.\n\n**canberra.**\n"),
    ("Canberra", "We look at 2 cities.\nAnswer: Canberra"),
    ("Canberra", "The answer is Canberra, because it has 3 letters a."),
    ("Canberra", "The answer is found in 2 steps.\nCanberra"),
    ("Canberra", "<think>1 of 2</think>It has 3 letters a.\nCanberra"),
    ("man bites dog", "There are 3 words.\nMan bites dog"),
    ("man bites dog", "I thought about it.\nMan bites dog"),
    ("yes", "7 is odd.\nyes"),
    ("no", "7 is odd.\nNo."),
    (["Canberra", "the capital of Australia"], "I count 2.\nThe capital of Australia."),
    ("x = 2 or x = 3", "The product is 6.\nx = 2 or x = 3"),
]
WRONG = [
    ("4:30 p.m.", "It is later than 4:30 p.m.\n5:30 p.m."),
    ("4:30 p.m.", "It is later than 4:30 p.m.\nSo it happens at 4:30 a.m."),
    ("4:30 p.m.", "From 4:30 p.m. on we wait 1 hour, until 5:30 p.m."),
    ("4:30 p.m.", "4:30 p.m. and 2 hours later"),
    ("4:30 p.m.", r"\boxed{4:30 a.m.}"),
    ("3 p.m.", "It is 3 a.m."),
    ("3 p.m.", r"\boxed{3\text{ a.m.}}"),
    ("Canberra", "Canberra\nhas 3 letters a, so it is Sydney"),
    ("Canberra", "Is it Canberra? It has 3 letters a.\nSydney"),
    ("Canberra", "It has 3 letters a.\nnot Canberra"),
    ("Canberra", "It has 3 letters a.\nCanberra or Sydney"),
    ("Canberra", "The answer is Sydney.\nCanberra"),
    ("Canberra", "The answer is Sydney, because it is larger than this:\nCanberra"),
    ("Canberra", "The answer is not Canberra, because it has 3 letters a."),
    ("Canberra", "The answer is Canberra or Sydney, because both have 2 vowels."),
    ("Canberra", "So \\boxed{Sydney} is larger than\nCanberra"),
    ("Canberra", "So \\boxed{Sydney\nCanberra"),
    ("Canberra", "<think>It has 3 letters a.\nCanberra</think>I do not know."),
    ("man bites dog", "There are 3 words.\nDog bites man"),
    ("12", "The answer is that Ann has 5 cats and 8 dogs, 13 in all.\n12"),
    ("yes", "7 is odd.\nyes and no"),
]


@pytest.mark.parametrize(("gold", "response"), RIGHT)
async def test_a_gold_in_words_may_be_the_last_line_or_what_is_stated(
    gold: str | list[str], response: str
) -> None:
    async with Verifier(resolve("math", {}, None, Path())) as verify:
        verdict = await verify(Sample("q", gold), response, None)
    assert verdict.reward == 1, verdict


@pytest.mark.parametrize(("gold", "response"), WRONG)
async def test_a_gold_in_words_that_is_mentioned_in_passing_is_no_answer(
    gold: str, response: str
) -> None:
    async with Verifier(resolve("math", {}, None, Path())) as verify:
        verdict = await verify(Sample("q", gold), response, None)
    assert verdict.reward == 0, verdict


async def test_the_half_of_the_day_is_shown_where_it_is_what_is_wrong() -> None:
    async with Verifier(resolve("math", {}, None, Path())) as verify:
        verdict = await verify(Sample("q", "3 p.m."), "It is 3 a.m.", None)
    assert verdict.critique == "expected 3 p.m., the answer was 3 a.m"


async def test_yes_and_no_are_words_and_no_products() -> None:
    async with Verifier(resolve("math", {}, None, Path())) as verify:
        verdicts = [await verify(Sample("q", "no"), rf"\boxed{{{x}}}", None) for x in ("No", "on")]
    assert [verdict.reward for verdict in verdicts] == [1, 0]
