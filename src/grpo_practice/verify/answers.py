"""Reads the answer out of a response: the last box, else the last formula or number.

Everything here is linear in the length of the text and runs in the driver's own process.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from grpo_practice.text import strip_think
from grpo_practice.types import Answer
from grpo_practice.verify.expressions import is_prose, last_expression
from grpo_practice.verify.notation import ascii_digits
from grpo_practice.verify.stated import final_after, last_statement, unlabelled

TAIL = 50_000
"""Characters at the end of a response in which its answer is looked for."""
BOXES = 8
"""The most boxes that together can be one answer of several values."""

_BOX = (
    r"(?<!\\)\\+(?:boxed|fbox)\s{0,9}\{"  # from where the backslashes begin: one try for each run
)
_BOX_OR_BRACE = re.compile(rf"{_BOX}|\\.|[{{}}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Said:
    """The answer a response gives."""

    text: str
    """As it is written."""
    boxes: tuple[str, ...] = ()
    """Contents of the last boxes, in order. Shape: [<= BOXES]."""
    lines: tuple[str, ...] = ()
    """Stated line and sentence where they are language, of which `text` is only a formula."""


def read_answer(response: str) -> Said | str:
    """Return the answer of a response, or the reason why it gives none.

    The last closed box that holds something is the answer, unless a final answer is stated after
    it; without a box, what is stated last ("Answer: (1, 2)"), else the last formula or number.
    """
    visible = strip_think(response)
    if visible is None:
        return "no answer: its thinking never ends"
    tail = visible[-TAIL:]
    if not tail.strip():
        return "no answer: the response is empty"
    found, unclosed = _boxes(tail)
    if found:
        if final := final_after(ascii_digits(tail), found[-1][1]):
            return Said(final)
        boxes = tuple(_innermost(tail[start:end].strip()) for start, end in found)
        return Said(boxes[-1], boxes)
    if unclosed:
        return "no answer: its box is never closed"
    tail = ascii_digits(tail)
    stated = last_statement(tail)
    if stated and not is_prose(stated[-1]):
        return Said(stated[-1], lines=stated[:-1])
    text = last_expression(tail) or (stated[0] if stated else None)
    return (
        Said(text, lines=stated) if text else "no answer: neither a box nor a formula nor a number"
    )


def last_box(response: str) -> str | None:
    """Return what the last closed box outside of thinking holds; None when there is none."""
    tail = (strip_think(response) or "")[-TAIL:]
    found, _ = _boxes(tail)
    return _innermost(tail[slice(*found[-1])].strip()) if found else None


def last_line(response: str) -> str | None:
    """Return the last line outside of thinking that is not blank, without "Answer:"."""
    line = last_lines(response, 1)
    return unlabelled(line.strip()) if line else None


def last_lines(response: str, n: int) -> str:
    """Return the last n lines outside of thinking that are not blank, as they stand."""
    tail = (strip_think(response) or "")[-TAIL:]
    return "\n".join([line for line in tail.splitlines() if line.strip()][-n:])


def last_words(response: str) -> str | None:
    """Return the last line where it may be an answer in words; None where another one is given.

    A box is one, and so is what is stated plainly; a sentence about the answer is none.
    """
    tail = (strip_think(response) or "")[-TAIL:]
    if any(_boxes(tail)) or any(not is_prose(text) for text in last_statement(tail)[:2]):
        return None
    return last_line(tail)


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


def _boxes(text: str) -> tuple[list[tuple[int, int]], bool]:
    """Return where the last outermost boxes hold something, and whether one was never closed.

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
    return spans[-BOXES:], any(start is not None for start in open_)


def _innermost(box: str) -> str:
    """Return the answer in a box within a box; one too long to be an answer stays as it is."""
    # Bounded, since each round reads the box again: boxes within boxes
    # take the square of its length.
    while len(box) <= TAIL // BOXES and (inner := _boxes(box)[0]):
        box = box[slice(*inner[-1])].strip()
    return box
