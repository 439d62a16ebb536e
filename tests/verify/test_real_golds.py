import asyncio
from collections import Counter
from pathlib import Path

import pytest

from grpo_practice.core.types import Sample
from grpo_practice.verify.resolve import check_gold, resolve
from grpo_practice.verify.same_text import as_text
from grpo_practice.verify.verifier import Verifier
from tests.verify.real_golds import REAL_GOLDS

MATH = resolve("math", {}, None, Path())
HOWS = ("mathematics", "text")


async def test_a_gold_that_equals_itself_can_be_used_and_any_other_is_refused_with_the_reason() -> (
    None
):
    usable = [row for row in REAL_GOLDS if row.how in HOWS]
    refused = [row for row in REAL_GOLDS if row.how not in HOWS]
    assert [check_gold(MATH, Sample("q", row.gold)) for row in usable] == [None] * len(usable)
    for row in refused:
        assert row.how in (check_gold(MATH, Sample("q", row.gold)) or "")
    async with Verifier(MATH) as verify:
        answers = [
            (row, said, right)
            for row in usable
            for said, right in ((row.gold, 1), (row.also, 1), (row.not_, 0))
        ]
        verdicts = await asyncio.gather(
            *(verify(Sample("q", row.gold), rf"\boxed{{{said}}}", None) for row, said, _ in answers)
        )
    wrong = [
        (row.gold, said, verdict)
        for (row, said, right), verdict in zip(answers, verdicts, strict=True)
        if verdict.reward != right
    ]
    assert wrong == []


@pytest.mark.long
async def test_the_table_says_what_is_compared_as_text_alone() -> None:
    from grpo_practice.verify import symbolic
    from grpo_practice.verify.math import _is_text, too_costly
    from grpo_practice.verify.notation import notation

    for row in REAL_GOLDS:
        if row.how in HOWS:
            text = notation(row.gold)
            alike = too_costly(text) or _is_text(text)
            read = not alike and symbolic.readable(text)
            assert read is (row.how == "mathematics"), row.gold
    assert len(REAL_GOLDS) >= 50
    assert Counter(row.how in HOWS for row in REAL_GOLDS)[False] == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x^{1}2", "x^{12}"),
        (r"\frac{1}{2}3", r"\frac{1}{23}"),
        ("1 2", "12"),
        ("(1, 500)", "(1,500)"),
        ("E", "e"),
        ("x⁶", "x6"),
        ("H₂", "H2"),
        (r"\alpha b", r"\alphab"),
    ],
)
def test_texts_that_say_different_things_stay_different(one: str, other: str) -> None:
    assert as_text(one) != as_text(other)


async def test_a_text_gold_is_also_read_off_a_line_that_states_it_without_a_box() -> None:
    gold = "min at x = 4, max at x = 2"
    async with Verifier(MATH) as verify:
        right = await verify(Sample("q", gold), f"We look at the slope.\nAnswer: {gold}.", None)
        wrong = await verify(Sample("q", gold), "Answer: min at x = 2, max at x = 4", None)
    assert (right.reward, wrong.reward) == (1, 0)


@pytest.mark.parametrize(
    ("gold", "said"),
    [(r"A \parallel m", r"A \parallel g"), (r"E_{1}, E_{2} g", r"E_{1}, E_{2} h")],
)
async def test_a_text_of_which_only_a_piece_is_read_is_compared_whole(gold: str, said: str) -> None:
    from grpo_practice.verify import symbolic

    assert symbolic.read(gold) == symbolic.read(said) != []
    async with Verifier(resolve("math", {"fast_path": False}, None, Path())) as verify:
        assert (await verify(Sample("q", gold), rf"\boxed{{{said}}}", None)).reward == 0
        assert (await verify(Sample("q", gold), rf"\boxed{{{gold}}}", None)).reward == 1
