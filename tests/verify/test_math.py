import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.errors import VerifyError
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify import symbolic
from grpo_practice.verify.math import Comparison, at_once
from grpo_practice.verify.resolve import check_gold, resolve
from grpo_practice.verify.verifier import Verifier
from tests.verify.hard_answers import PAIRS

MATH = resolve("math", {}, None, Path())


async def test_every_hard_pair_is_judged_as_the_table_says() -> None:
    async with Verifier(MATH) as verify:
        verdicts = await asyncio.gather(
            *(verify(Sample("q", p.gold), p.response, None) for p in PAIRS)
        )
    said = [
        (p.response[:80], p.gold, v.reward, v.critique)
        for p, v in zip(PAIRS, verdicts, strict=True)
    ]
    wrong = [s for s, p in zip(said, PAIRS, strict=True) if s[2] != float(p.math)]
    assert wrong == []
    assert all(v.critique for v in verdicts if v.reward == 0)


def test_the_table_says_why_where_a_person_would_differ() -> None:
    assert len(PAIRS) >= 60
    assert [p for p in PAIRS if (p.math != p.person) != bool(p.note)] == []
    assert sum(p.math != p.person for p in PAIRS) <= len(PAIRS) / 10


def test_every_gold_of_the_table_is_usable() -> None:
    assert [r for p in PAIRS if (r := check_gold(MATH, Sample("q", p.gold)))] == []


@pytest.mark.parametrize(
    ("gold", "why"),
    [
        (None, "needs an answer"),
        ("", "needs an answer"),
        ([], "needs an answer"),
        (["7", "$$"], "empty"),
        ("9^9^{9^9", "digits"),
        ("1+" * 1_001 + "1", "2,000 characters"),
        (r"\frac{1}{", "cannot be read"),
        (r"\{ \}}", "cannot be read"),
    ],
)
def test_a_gold_that_cannot_be_used_is_said_before_any_call(
    gold: str | list[str] | None, why: str
) -> None:
    reason = check_gold(MATH, Sample("q", gold))
    assert reason is not None
    assert why in reason


SPELLINGS = [
    "{}", "{}.", "${}$", "00{}", " {} ", r"\({}\)", "{} apples", r"{}\text{{ cm}}", "**{}**",
    r"\text{{{}}}",
]  # fmt: skip


@st.composite
def spelled(draw: st.DrawFn) -> tuple[int, str]:
    """An integer and one way to write it."""
    value = draw(st.integers(-(10**7), 10**7) | st.integers())
    separator = draw(st.sampled_from(["", ",", r"\,", "{,}", " ", r"\ "]))
    digits = f"{abs(value):,}".replace(",", separator)
    sign = "-" if value < 0 else draw(st.sampled_from(["", "+"]))
    form = draw(st.sampled_from(SPELLINGS))
    padded = form.startswith("00") and (separator or sign)  # 00-5 and 001,000 are no integers
    return value, ("{}" if padded else form).format(sign + digits)


def slow(gold: str, response: str) -> bool:
    found = at_once([gold], response, fast_path=False)
    assert isinstance(found, Comparison)
    return symbolic.matches(found.golds[0], found.said, found.boxes) is True


@given(spelled(), spelled(), st.booleans())
def test_the_fast_path_agrees_with_the_slow_one_on_integers(
    one: tuple[int, str], other: tuple[int, str], same: bool
) -> None:
    (wanted, gold), (value, said) = one, (one[0], other[1]) if same else other
    response = rf"So \boxed{{{said}}}"
    fast = at_once([gold], response)
    assert isinstance(fast, Verdict), "an integer was left to the worker"
    assert (fast.reward == 1) is slow(gold, response)
    if not same:
        assert (fast.reward == 1) is (wanted == value)


def test_an_integer_takes_microseconds() -> None:
    started = time.process_time()
    for _ in range(1_000):
        at_once(["1,234"], r"After some work we find that the answer is $\boxed{1\,234}$.")
    assert time.process_time() - started < 10  # of this process; read by sympy, more than a minute


async def test_without_the_fast_path_a_worker_decides() -> None:
    found = at_once(["42"], r"\boxed{42}", fast_path=False)
    assert found == Comparison(["42"], "42", ["42"])
    async with Verifier(resolve("math", {"fast_path": False}, None, Path())) as verify:
        assert (await verify(Sample("q", "42"), r"\boxed{42}", None)).reward == 1
        assert (await verify(Sample("q", "42"), r"\boxed{43}", None)).reward == 0


async def test_a_wrong_answer_says_what_was_expected_and_what_was_said() -> None:
    async with Verifier(MATH) as verify:
        assert await verify(Sample("q", ["42", "7"]), r"\boxed{41}", None) == Verdict(
            0.0, "expected 42 or 7, the answer was 41", "41"
        )
        assert await verify(Sample("q", "42"), r"\boxed{42}", None) == Verdict(1.0, None, "42")
        right = await verify(Sample("q", "1/2"), r"\boxed{0.50}", None)
        assert (right.reward, right.extracted) == (1.0, "0.50")


async def test_an_answer_that_takes_too_long_is_wrong_with_that_reason() -> None:
    async with Verifier(resolve("math", {}, 0.5, Path())) as verify:
        verdict = await verify(Sample("q", "1"), r"\boxed{\sum_{i=1}^{10^{9}} i^{i}}", None)
    assert verdict.reward == 0
    assert "longer than 0.5 s" in (verdict.critique or "")


async def test_a_sample_without_a_gold_is_never_scored() -> None:
    async with Verifier(MATH) as verify:
        with pytest.raises(VerifyError, match="no answer to compare"):
            await verify(Sample("q"), r"\boxed{41}", None)
