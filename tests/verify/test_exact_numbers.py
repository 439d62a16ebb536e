from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.types import Verdict
from grpo_practice.verify import symbolic
from grpo_practice.verify.exact_numbers import equal, is_number
from grpo_practice.verify.math import at_once, unusable
from grpo_practice.verify.notation import notation


def spelled(above: int, below: int, form: str) -> str:
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
    return spelled(above, below, draw(FORMS)), spelled(*other, draw(FORMS))


@given(pairs())
def test_what_is_said_of_two_numbers_math_verify_says_too(pair: tuple[str, str]) -> None:
    gold, said = map(notation, pair)
    told = equal(gold, said)
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
    assert equal(gold, said) is told
    assert equal(said, gold) is told


def test_a_plain_number_is_decided_without_a_worker_unless_that_is_not_wanted() -> None:
    assert at_once(["7", r"\frac{3}{4}"], r"\boxed{0.75}") == Verdict(1.0, extracted="0.75")
    wrong = at_once(["3/4"], r"\boxed{0.7}")
    assert wrong == Verdict(0.0, "expected 3/4, the answer was 0.7", "0.7")
    assert not isinstance(at_once(["3/4"], r"\boxed{0.7}", fast_path=False), Verdict)
    assert not isinstance(at_once(["3/4", "x"], r"\boxed{0.7}"), Verdict)


def test_a_gold_that_is_a_plain_number_can_be_used_as_math_verify_would_say() -> None:
    for gold in ("1/2", r"\frac{7}{3}", "0.25", "-3.5"):
        assert is_number(gold)
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
