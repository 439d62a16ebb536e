"""Formulas and numbers in a text without a box, found in time linear in its length."""

import re
from collections import deque
from itertools import pairwise

_DOLLARS = 16
"""Maximum number of single dollar signs, counted from the end of a text, that are examined."""
_NAMED = re.compile(r"\\[A-Za-z]+|\{[^{}]*\}")
_WORD = re.compile(r"[^\W\d_]{2,}")
_DIGITS = (
    r"(?:[1-9]\d{0,2}(?:(?:[ ,\u00a0\u2009\u202f]|\\[,;: ]|\{,\})\d{3})+(?![\d])(?:\.\d+)?"
    r"|\d{1,3}(?:\.\d{3})+,\d+(?![\d,])|\d+,\d{1,2}(?![\d,])"  # decimal commas
    r"|\d+(?:\.\d+)?|\.\d+)"
)
_TERM = rf"[-+]?(?:\\?\$|[€£¥₹])?[-+]?{_DIGITS}(?:(?:\*\*|[-+*/^:\u00d7·÷]){_DIGITS})*"
EXPRESSION = re.compile(
    r"(?<![\w.])[-+]?\d{1,9} \d{1,9}/\d{1,9}(?!\d)"
    rf"|[(\[]\s?{_TERM}(?:,(?:\s|(?!\d{{3}}\b)){_TERM})+\s?[)\]]"
    r"|(?<![\w.])\d{1,2}(?::\d{2})?\s?(?i:[ap](?:m\b|\.\s?m\b))"  # a time of day: 4:30 p.m.
    rf"|(?<![\w.]){_TERM}(?:\s?\\?%|\s?percent\b| (?:hundred|thousand|million|billion|dozen)\b)?"
    r"|\\[dt]?frac\{-?\d+\}\{-?\d+\}"
)


def is_prose(text: str) -> bool:
    """Return whether the text has words outside formulas; a single word is an answer, not prose."""
    if re.fullmatch(r"\W*[^\W\d_]+\W*", text):
        return False
    return bool(_WORD.search(_NAMED.sub(" ", text)))


def last_expression(tail: str) -> str | None:
    """Return the last formula or number in the text, whichever ends last."""
    last = deque(EXPRESSION.finditer(tail), maxlen=1)
    number = last[0] if last else None
    formula = _last_formula(tail)
    if formula and (number is None or number.start() < formula[1]):
        return formula[0]
    return number[0] if number else None


def _last_formula(tail: str) -> tuple[str, int] | None:
    r"""Return the last formula between dollars, `\(…\)` or `\[…\]`, and the position of its end."""
    found = []
    for begin, end in ((r"\(", r"\)"), (r"\[", r"\]"), ("$$", "$$")):
        stop = tail.rfind(end)
        start = tail.rfind(begin, 0, stop) if stop > 0 else -1
        if start != -1:
            found.append((tail[start + 2 : stop], stop + 2))
    if inline := _last_inline(tail):
        found.append(inline)
    found = [(text.strip(), end) for text, end in found if text.strip() and not is_prose(text)]
    return max(found, key=lambda f: f[1]) if found else None


def _last_inline(tail: str) -> tuple[str, int] | None:
    """Return the last formula between single dollars that is not prose, a price or multi-line."""
    dollars = [m.start() for m in re.finditer(r"(?<![\\$])\$(?!\$)", tail)][-_DOLLARS:]
    for start, stop in reversed(list(pairwise(dollars))):
        text = tail[start + 1 : stop]
        price = tail[stop + 1 : stop + 2].isdigit() or tail[max(start - 1, 0)].isdigit()
        if text.strip() and "\n" not in text and not price and not is_prose(text):
            return text, stop + 1
    return None
