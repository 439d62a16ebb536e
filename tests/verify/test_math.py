import asyncio
import time
from decimal import Decimal, localcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.errors import VerifyError
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify.math import Comparison, at_once, equal_numbers, too_costly, unusable
from grpo_practice.verify.notation import notation
from grpo_practice.verify.resolve import check_gold, resolve
from grpo_practice.verify.verifier import Verifier
from tests.late import Late
from tests.verify.hard_answers import PAIRS

if TYPE_CHECKING:
    from grpo_practice.verify import symbolic
else:
    symbolic = Late("grpo_practice.verify.symbolic")

MATH = resolve("math", {}, None, Path())


@pytest.mark.long
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


def fraction(above: int, below: int, form: str) -> str:
    """The fraction as it is, reduced to a few decimals, or expanded."""
    sign, above = "-" if above < 0 else "", abs(above)
    if form.startswith("."):
        with localcontext(prec=60):
            return sign + format(Decimal(above) / below, form + "f")
    if form == "/":
        return f"{sign}{above}/{below}"
    return rf"{sign}\{form}{{{3 * above}}}{{{3 * below}}}"


FORMS = st.sampled_from([".0", ".1", ".2", ".5", ".6", ".7", ".20", "/", "frac", "dfrac", "tfrac"])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Two numbers that are the same, nearly the same, or not."""
    above, below = draw(st.integers(-2_000, 2_000)), draw(st.sampled_from([1, 2, 3, 7, 8, 40, 625]))
    near = draw(st.sampled_from([(0, 1), (0, 1), (1, 1), (1, 10), (1, 1_000), (1, 100_000)]))
    other = above * near[1] + near[0], below * near[1]
    return fraction(above, below, draw(FORMS)), fraction(*other, draw(FORMS))


@given(pairs())
def test_what_is_said_of_two_numbers_math_verify_says_too(pair: tuple[str, str]) -> None:
    gold, said = map(notation, pair)
    told = equal_numbers(gold, said)
    if told is not None:
        assert symbolic.matches(gold, said, [said]) is told


@pytest.mark.parametrize(
    ("gold", "said", "told"),
    [
        ("1/2", "0.5", True),
        ("0.50", r"\frac{2}{4}", True),
        (r"-\frac{1}{2}", "-0.5", True),
        ("3", "3.0", True),
        ("1/3", "0.3", False),
        ("0.5", "-0.5", False),
        ("3", "10.833333333333332", False),
        ("1/3", "0.333333", None),
        ("0.1234567", "0.1234567", None),
        ("1/0", "1", None),
        ("1234567890.5", "1", None),
        (r"\sqrt{2}", "1.4", None),
        ("25\\%", "0.25", None),
    ],
)
def test_only_clear_cases_are_told(gold: str, said: str, told: bool | None) -> None:
    assert equal_numbers(gold, said) is told
    assert equal_numbers(said, gold) is told


def test_a_plain_number_is_decided_without_a_worker_unless_that_is_not_wanted() -> None:
    assert at_once(["7", r"\frac{3}{4}"], r"\boxed{0.75}") == Verdict(1.0, extracted="0.75")
    wrong = at_once(["3/4"], r"\boxed{0.7}")
    assert wrong == Verdict(0.0, "expected 3/4, the answer was 0.7", "0.7")
    assert not isinstance(at_once(["3/4"], r"\boxed{0.7}", fast_path=False), Verdict)
    assert not isinstance(at_once(["3/4", "x"], r"\boxed{0.7}"), Verdict)


def test_a_gold_that_is_a_plain_number_can_be_used_as_math_verify_would_say() -> None:
    for gold in ("1/2", r"\frac{7}{3}", "0.25", "-3.5"):
        assert equal_numbers(gold, gold)
        assert unusable(gold) is None
        assert symbolic.readable(gold)


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("(3,-4)", "( 3, -4 )"),
        ("y=3x-2", "y = 3x - 2"),
        (r"(-\infty,3)\cup(5,\infty)", r"(-\infty, 3)\cup(5, \infty)"),
        (r"\{1,2\}", r"\{1, 2\}"),
    ],
)
def test_spaces_beside_a_sign_say_nothing_to_math_verify_either(gold: str, said: str) -> None:
    assert isinstance(at_once([gold], rf"\boxed{{{said}}}"), Verdict)
    assert symbolic.matches(notation(gold), notation(said), [said]) is True


@pytest.mark.parametrize(
    ("gold", "said"), [("1,000,x", "1, 000,x"), ("2a", "2 a"), (r"1\ )", "1)")]
)
def test_other_spaces_are_left_to_math_verify(gold: str, said: str) -> None:
    assert not isinstance(at_once([gold], rf"\boxed{{{said}}}"), Verdict)


@pytest.mark.parametrize(
    "text",
    [
        "9^9^9^9",
        "9^{9^{9}}",
        "10^10^10!",
        "(10^{10})!",
        r"\left(10^{10}\right)!",
        "100000!",
        "((9!)!)!",
        "2**10**10",
        "2^{100000}",
        "10^{-999999999}",
        r"e^{9^{9^{9}}}",
        "1" * 2_001,
        "(" * 51 + "1" + ")" * 51,
        "1^" * 999 + "9" * 100 + "^9",
    ],
)
def test_towers_factorials_and_long_texts_are_refused_without_computing_them(text: str) -> None:
    started = time.process_time()
    assert too_costly(text) is not None
    assert time.process_time() - started < 30  # seconds of this process; computed, for ever


@pytest.mark.parametrize(
    "text",
    [
        "2^{2^3}",
        "2^{10}",
        "10^{100}",
        "e^{x^2}",
        "100!",
        "3!!",
        "1^{999999}",
        "0^{9!}",
        r"\binom{9}{3}!",
    ],
)
def test_ordinary_powers_and_factorials_are_read(text: str) -> None:
    assert too_costly(text) is None
