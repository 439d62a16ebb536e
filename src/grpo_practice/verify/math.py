"""The built-in `math`: does the answer have the same mathematical value as the gold answer?

Identical texts and plain numbers are compared here in microseconds, everything else by math-verify
in a worker. Both paths read the same notation, and math-verify reads `-?[0-9]+` as that integer, so
they agree on every gold answer that math-verify can read; decimals and fractions are compared here
only if they are clearly equal or clearly different.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_practice.core.types import Verdict
from grpo_practice.verify import exact_numbers
from grpo_practice.verify.answers import last_words, read_answer
from grpo_practice.verify.cost_guard import too_costly
from grpo_practice.verify.notation import LONGEST, notation
from grpo_practice.verify.same_text import as_text, other_half, without_half

_INTEGER = re.compile(r"-?[0-9]{1,100}")
_WORDS = re.compile(r"[^\W\d_]+(?:[ '-]+[^\W\d_]+)*\.?")
_COMMAND = re.compile(r"\\(?:begin|end|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+")
_RATIO = re.compile(r"[\d.]+(?:\s*:\s*[\d.]+){2,}")
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}/\d{1,2}/\d{4}")
_WORD = re.compile(r"[^\W\d_]{3,}")
_FUNCTIONS = frozenset(["sqrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "log", "exp"])


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
    return bool(_INTEGER.fullmatch(text)) or exact_numbers.is_number(text)


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
    return exact_numbers.equal(gold, said)


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
