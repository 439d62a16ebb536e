"""The built-in `math`: does the answer have the same mathematical value as the gold answer?

Identical texts and plain numbers are compared here in microseconds, everything else by math-verify
in a worker. Both paths read the same notation, and math-verify reads `-?[0-9]+` as that integer, so
they agree on every gold answer that math-verify can read. Decimals and fractions are compared here
only if math-verify would certainly agree: it rounds decimals to six places and ignores differences
below 1e-15, so close cases are left to it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, lgamma, log, log10

from grpo_practice.core.types import Verdict
from grpo_practice.verify.answers import last_words, read_answer
from grpo_practice.verify.notation import LONGEST, notation
from grpo_practice.verify.same_text import as_text, other_half, without_half

_INTEGER = re.compile(r"-?[0-9]{1,100}")
_WORDS = re.compile(r"[^\W\d_]+(?:[ '-]+[^\W\d_]+)*\.?")
_COMMAND = re.compile(r"\\(?:begin|end|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+")
_RATIO = re.compile(r"[\d.]+(?:\s*:\s*[\d.]+){2,}")
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}/\d{1,2}/\d{4}")
_WORD = re.compile(r"[^\W\d_]{3,}")
_FUNCTIONS = frozenset(["sqrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "log", "exp"])

_FAR = 10_000
"""Inverse of the difference above which two numbers are unequal in spite of any rounding."""
_PLACES = 6
"""Number of decimal places that math-verify compares."""
# Digits are bounded to keep comparisons fast; longer numbers are left to the worker.
_PLAIN_NUMBER = re.compile(
    r"(?P<sign>-?)(?:(?P<whole>[0-9]{1,9})(?:\.(?P<places>[0-9]{1,40}))?"
    r"|(?P<above>[0-9]{1,6})/(?P<below>[0-9]{1,6})"
    r"|\\[dt]?frac\{(?P<top>-?[0-9]{1,6})\}\{(?P<bottom>[0-9]{1,6})\})"
)
_DECIMAL_COMMA = re.compile(r"(-?)([0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+),([0-9]+)")
_SURELY_A_COMMA = re.compile(r"-?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]{4,}),[0-9]{1,2}")
"""A gold answer that certainly uses a decimal comma; `3,5` may be two numbers."""

DIGITS = 10_000
"""Maximum number of digits in the value of a power or a factorial."""

_GROUPING = re.compile(r"\\left|\\right|\\[,;:! ]|[{}()\[\]\s]")
_TOWER = re.compile(r"\d+!*(?:\^-?\d+!*)+|\d+!+")
_DEEP = 50


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison that a worker has to decide."""

    golds: Sequence[str]
    said: str
    boxes: Sequence[str]


def at_once(golds: Sequence[str], response: str, *, fast_path: bool = True) -> Verdict | Comparison:
    """Return the verdict if no computer algebra is needed, otherwise the comparison for a worker.

    The answer may match any of the gold answers; `fast_path=False` sends numbers to the worker as
    well.
    """
    if last := _in_words(golds, response):
        return Verdict(1.0, extracted=last)
    answer = read_answer(response)
    if isinstance(answer, str):
        return wrong(golds, answer)
    if len(answer.text) > LONGEST:
        return wrong(golds, f"the answer is longer than {LONGEST:,} characters")
    said = notation(answer.text)
    # `notation` drops the p.m. of "3 p.m." as a unit, but here it distinguishes two answers.
    wanted = [notation(gold) for gold in golds if not other_half(gold, answer.text)]
    open_ = [gold for gold in wanted if not _is_text(gold)]
    as_texts = [gold for gold in wanted if fast_path or gold not in open_]
    if same := _same(as_texts, (said, without_half(said), *map(notation, answer.lines))):
        return same
    if _DATE.fullmatch(said):
        return differs(golds, said)
    if fast_path:
        compared = [(gold, _same_number(gold, said)) for gold in open_]
        if any(same for _, same in compared):
            return Verdict(1.0, extracted=said)
        open_ = [gold for gold, same in compared if same is None]
    # A gold that would take minutes is compared only as text.
    open_ = [gold for gold in open_ if too_costly(gold) is None]
    if not open_:
        return differs(golds, said if wanted else answer.text)
    if cost := too_costly(said):
        return wrong(golds, f"the answer is {cost}", said)
    affordable = [box for box in answer.boxes if too_costly(notation(box)) is None]
    return Comparison(open_, said, affordable)


def _same(golds: Sequence[str], texts: Sequence[str]) -> Verdict | None:
    """Return reward 1 for the first text that equals a gold answer; None if no text does."""
    found = (text for text in texts if any(_alike(gold, text) for gold in golds))
    return next((Verdict(1.0, extracted=text) for text in found), None)


def _in_words(golds: Sequence[str], response: str) -> str | None:
    """Return the last line if the whole line equals a gold answer in words; otherwise None.

    For example, if "Canberra" is the last line after "It has 3 letters a.", the answer is neither a
    formula nor introduced by a phrase such as "the answer is".
    """
    wanted = [text for gold in golds if not _is_number(text := notation(gold))]
    if not wanted or (words := last_words(response)) is None or len(words) > LONGEST:
        return None
    last = notation(words)
    return last if any(_alike(gold, last) for gold in wanted) else None


def _is_number(text: str) -> bool:
    return bool(_INTEGER.fullmatch(text)) or _fraction(text) is not None


def _alike(gold: str, text: str) -> bool:
    """Return whether two texts are the same; in prose, case is ignored."""
    if gold == text or (_INTEGER.fullmatch(gold) and _INTEGER.fullmatch(text)):
        return gold == text != ""
    one, other = as_text(gold), as_text(text)
    if _is_text(gold):
        one, other = one.casefold(), other.casefold()
    return one == other != ""


def _same_number(gold: str, said: str) -> bool | None:
    """Return whether two plain numbers are equal; None if the worker has to decide."""
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(said):
        return gold == said
    return equal_numbers(gold, said)


def _is_text(gold: str) -> bool:
    """Return whether a gold answer is compared only as text: prose, a date, a multiple ratio.

    Read as a product, "dog bites man" would equal "man bites dog"; read as a fraction, 3:4:5 would
    equal 3:5:4; read as a difference, 2021-05-03 would equal 2013.
    """
    if _RATIO.fullmatch(gold) or _DATE.fullmatch(gold):
        return True
    if _WORDS.fullmatch(gold):
        named = len(gold) > 3 or (len(gold) > 1 and gold[0].isupper())
        return named or gold in ("yes", "no")
    words = {word.lower() for word in _WORD.findall(_COMMAND.sub(" ", gold))} - _FUNCTIONS
    return len(words) >= 2 and not any(char.isdigit() for char in gold)


def wrong(golds: Sequence[str], reason: str, said: str | None = None) -> Verdict:
    """Return reward 0 with the reason why the response gives no valid answer."""
    return Verdict(0.0, f"expected {_either(golds)}; {reason}", said)


def differs(golds: Sequence[str], said: str) -> Verdict:
    """Return reward 0 for an answer that differs from the gold answer."""
    return Verdict(0.0, f"expected {_either(golds)}, the answer was {said}", said)


def unusable(gold: str) -> str | None:
    """Return why no answer can equal this gold answer; None if one can, at least as text."""
    text = notation(gold)
    if not text:
        return "it is empty"
    if len(text) > LONGEST:
        return f"it is longer than {LONGEST:,} characters"
    if _is_text(text) or _is_number(text):
        return None
    answer = read_answer(rf"\boxed{{{gold}}}")
    if not isinstance(answer, str) and _alike(text, notation(answer.text)):
        return None
    if cost := too_costly(text):
        return f"it is {cost}"
    from grpo_practice.verify import symbolic

    return None if symbolic.readable(text) else "it cannot be read as mathematics"


def _either(golds: Sequence[str]) -> str:
    return " or ".join(golds)


def _with_point(text: str) -> str | None:
    """Return a number such as `1.000,99` with a decimal point; None for other text.

    The function `notation` has already removed commas between thousands.
    """
    match = _DECIMAL_COMMA.fullmatch(text)
    return f"{match[1]}{match[2].replace('.', '')}.{match[3]}" if match else None


def equal_numbers(gold: str, said: str) -> bool | None:
    """Return whether two numbers are equal; None if either is not plain, or if they are too close.

    Both numbers must be normalised by `notation`. Treating a comma as a decimal comma can only make
    the numbers equal, never unequal, because `3,5` may also be two numbers.
    """
    if _SURELY_A_COMMA.fullmatch(gold):
        return equal_numbers(_with_point(gold) or "", _with_point(said) or said) or None
    if spelled := _with_point(said):
        return equal_numbers(gold, spelled) or None
    one, other = _fraction(gold), _fraction(said)
    if one is None or other is None:
        return None
    (a, b, exact), (c, d, also_exact) = one, other
    difference = abs(a * d - c * b)
    if difference * _FAR > b * d:
        return False
    return True if difference == 0 and exact and also_exact else None


def _fraction(text: str) -> tuple[int, int, bool] | None:
    """Return numerator, denominator, and whether math-verify compares the number unrounded."""
    match = _PLAIN_NUMBER.fullmatch(text)
    if match is None:
        return None
    places = match["places"] or ""
    if match["whole"]:
        above, below = int(match["whole"] + places), 10 ** len(places)
    else:
        above, below = int(match["above"] or match["top"]), int(match["below"] or match["bottom"])
    if below == 0:
        return None
    return -above if match["sign"] else above, below, len(places) <= _PLACES


def too_costly(text: str) -> str | None:
    """Return why the text is too costly to parse as mathematics; None if it is cheap enough to try.

    The guard detects towers of powers and factorials; the workers' limits catch everything else.
    """
    if len(text) > LONGEST:
        return f"longer than {LONGEST:,} characters"
    if _depth(text) > _DEEP:
        return f"nested more than {_DEEP} deep"
    for tower in _TOWER.findall(_GROUPING.sub("", text.replace("**", "^"))):
        if _digits(tower) > DIGITS:
            return f"a number of more than {DIGITS:,} digits"
    return None


def _depth(text: str) -> int:
    """Return the greatest nesting depth of brackets of any kind."""
    depth = deepest = 0
    for char in text:
        if char in "({[":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")}]" and depth:
            depth -= 1
    return deepest


def _digits(tower: str) -> float:
    """Estimate the number of digits of `a!^b!^c` without computing it."""
    digits, exponent = 0.0, 1.0
    for part in reversed(tower.split("^")):
        base = part.strip("-!")
        # log10(0) raises.
        digits = log10(max(int(base), 1))
        for _ in range(part.count("!")):
            # 100,000! already has more than DIGITS digits; for larger numbers lgamma overflows.
            digits = lgamma(10**digits + 1) / log(10) if digits < 5 else inf
        digits = digits * exponent if digits else 0.0
        # Floats end at 10**308 with an OverflowError.
        exponent = 10**digits if digits < 300 else inf
    return digits
