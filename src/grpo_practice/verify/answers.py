"""Reads the answer out of a response: the last box, else the last formula or number.

Everything here is linear in the length of the text and runs in the driver's own process.
"""

import re
from collections import deque
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from grpo_practice.text import strip_think
from grpo_practice.types import Answer
from grpo_practice.verify.notation import ascii_digits

TAIL = 50_000
"""Characters at the end of a response in which its answer is looked for."""
BOXES = 8
"""The most boxes that together can be one answer of several values."""

_BOX = (
    r"(?<!\\)\\+(?:boxed|fbox)\s{0,9}\{"  # from where the backslashes begin: one try for each run
)
_BOX_OR_BRACE = re.compile(rf"{_BOX}|\\.|[{{}}]", re.DOTALL)
_STATED = re.compile(
    r"^[\W_]*(?:(?:so|thus|hence|therefore),?\s+)?(?:(?:the|my)\s+)?(?:(?:final|correct)\s+)?"
    r"(?:answer|result)[*_]*\s*(?:is|are|:|=)[\s:*_]*|^[*_]*a:[*_\s]*|^#{4}\s*",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\\[A-Za-z]+|\{[^{}]*\}")
_WORD = re.compile(r"[^\W\d_]{2,}")
_DIGITS = (
    r"(?:[1-9]\d{0,2}(?:(?:[ ,\u00a0\u2009\u202f]|\\[,;: ]|\{,\})\d{3})+(?![\d])(?:\.\d+)?"
    r"|\d+(?:\.\d+)?|\.\d+)"
)
_TERM = rf"[-+]?(?:\\?\$|[€£¥₹])?[-+]?{_DIGITS}(?:(?:\*\*|[-+*/^:\u00d7·÷]){_DIGITS})*"
_EXPRESSION = re.compile(
    r"(?<![\w.])[-+]?\d{1,9} \d{1,9}/\d{1,9}(?!\d)"
    rf"|[(\[]\s?{_TERM}(?:,(?:\s|(?!\d{{3}}\b)){_TERM})+\s?[)\]]"
    rf"|(?<![\w.]){_TERM}(?:\s?\\?%|\s?percent\b| (?:hundred|thousand|million|billion|dozen)\b)?"
    r"|\\[dt]?frac\{-?\d+\}\{-?\d+\}"
)


@dataclass(frozen=True, slots=True)
class Said:
    """The answer a response gives."""

    text: str
    """As it is written."""
    boxes: tuple[str, ...] = ()
    """Contents of the last boxes, in order. Shape: [<= BOXES]."""
    line: str | None = None
    """Stated answer in full where it is language, of which `text` is only the last formula."""


def read_answer(response: str) -> Said | str:
    """Return the answer of a response, or the reason why it gives none.

    The last closed box that holds something is the answer; without a box, the last line that
    states one ("Answer: (1, 2)"), else the last formula or number.
    """
    visible = strip_think(response)
    if visible is None:
        return "no answer: its thinking never ends"
    tail = visible[-TAIL:]
    if not tail.strip():
        return "no answer: the response is empty"
    found, unclosed = _boxes(tail)
    if found:
        return Said(_innermost(found[-1]), tuple(_innermost(box) for box in found))
    if unclosed:
        return "no answer: its box is never closed"
    tail = ascii_digits(tail)
    stated = _stated(tail)
    if stated and not _prose(stated):
        return Said(stated)
    text = _last_expression(tail) or stated
    return (
        Said(text, line=stated) if text else "no answer: neither a box nor a formula nor a number"
    )


def last_box(response: str) -> str | None:
    """Return what the last closed box outside of thinking holds; None when there is none."""
    found, _ = _boxes((strip_think(response) or "")[-TAIL:])
    return _innermost(found[-1]) if found else None


def last_line(response: str) -> str | None:
    """Return the last line outside of thinking that is not blank, without "Answer:"."""
    lines = [line for line in (strip_think(response) or "")[-TAIL:].splitlines() if line.strip()]
    if not lines:
        return None
    line = lines[-1].strip()
    return line[match.end() :] if (match := _STATED.match(line)) else line


def gold_texts(answer: Answer) -> list[str]:
    """Return the gold's alternatives as text; [] when there is none.

    Numbers are spelled without an exponent, so that 1e-07 from JSON reads as a decimal.
    """
    match answer:
        case None:
            return []
        case list():
            return [text for one in answer for text in gold_texts(one)]
        case float():
            return [f"{Decimal(repr(answer)):f}"]
        case _:
            return [str(answer)]


def _boxes(text: str) -> tuple[list[str], bool]:
    """Return the last outermost boxes that hold something, and whether one was never closed.

    Text before the first box closes none, so it is not looked at.
    """
    named = [at for at in (text.find("boxed"), text.find("fbox")) if at >= 0]
    if not named:
        return [], False
    begin = len(text[: min(named)].rstrip("\\"))
    open_: list[int | None] = []  # where a box's content starts; None for any other brace
    spans: list[tuple[int, int]] = []
    for token in _BOX_OR_BRACE.finditer(text, begin):
        if token[0] == "{":
            open_.append(None)
        elif token[0] == "}":
            start = open_.pop() if open_ else None
            if start is not None and text[start : token.start()].strip():
                while spans and spans[-1][0] > start:
                    spans.pop()
                spans.append((start, token.start()))
        elif token[0].endswith("{") and len(token[0]) > 2:
            open_.append(token.end())
    boxes = [text[start:end].strip() for start, end in spans[-BOXES:]]
    return boxes, any(start is not None for start in open_)


def _innermost(box: str) -> str:
    """Return the answer in a box within a box; one too long to be an answer stays as it is."""
    # Bounded, since each round reads the box again: boxes within boxes
    # take the square of its length.
    while len(box) <= TAIL // BOXES and (inner := _boxes(box)[0]):
        box = inner[-1]
    return box


def _stated(tail: str) -> str | None:
    """Return what follows the last "the answer is"; one short line alone states its whole."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    for line in reversed(lines):
        if match := _STATED.match(line):
            return _without_emphasis(line[match.end() :]) or None
    return _without_emphasis(lines[0]) if len(lines) == 1 and len(lines[0]) <= 200 else None


def _without_emphasis(text: str) -> str:
    """Strip Markdown emphasis and the full stop that ends a sentence."""
    return text.strip(" \t*_`").rstrip(".").strip(" \t*_`")


def _prose(text: str) -> bool:
    """Return True for words that belong to no formula; one word alone is an answer."""
    if re.fullmatch(r"\W*[^\W\d_]+\W*", text):
        return False
    return bool(_WORD.search(_NAMED.sub(" ", text)))


def _last_expression(tail: str) -> str | None:
    """Return the formula or the number that ends last."""
    last = deque(_EXPRESSION.finditer(tail), maxlen=1)
    number = last[0] if last else None
    formula = _last_formula(tail)
    if formula and (number is None or number.start() < formula[1]):
        return formula[0]
    return number[0] if number else None


def _last_formula(tail: str) -> tuple[str, int] | None:
    r"""Return the last formula between dollars, `\(…\)` or `\[…\]`, and where it ends."""
    found = []
    for begin, end in ((r"\(", r"\)"), (r"\[", r"\]"), ("$$", "$$")):
        stop = tail.rfind(end)
        start = tail.rfind(begin, 0, stop) if stop > 0 else -1
        if start != -1:
            found.append((tail[start + 2 : stop], stop + 2))
    if inline := _last_inline(tail):
        found.append(inline)
    found = [(text.strip(), end) for text, end in found if text.strip() and not _prose(text)]
    return max(found, key=lambda f: f[1]) if found else None


def _last_inline(tail: str) -> tuple[str, int] | None:
    """Return the last formula between single dollars: no line break, no prose, not a price."""
    dollars = [m.start() for m in re.finditer(r"(?<![\\$])\$(?!\$)", tail)][-2 * BOXES :]
    for start, stop in reversed(list(pairwise(dollars))):
        text = tail[start + 1 : stop]
        price = tail[stop + 1 : stop + 2].isdigit() or tail[max(start - 1, 0)].isdigit()
        if text.strip() and "\n" not in text and not price and not _prose(text):
            return text, stop + 1
    return None
