"""Extracts the answer from a response: the last box, otherwise the last formula or number.

All functions run in the driver's own process, in time linear in the length of the text.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from grpo_practice.core.text import strip_think
from grpo_practice.core.types import Answer
from grpo_practice.verify.expressions import is_prose, last_expression
from grpo_practice.verify.notation import ascii_digits
from grpo_practice.verify.stated import final_after, last_statement, unlabelled

TAIL = 50_000
"""Number of characters at the end of a response that are searched for the answer."""
BOXES = 8
"""Maximum number of boxes that together can form one answer with several values."""

_BOX = r"(?<!\\)\\+(?:boxed|fbox)\s{0,9}\{"  # at the first backslash: one match attempt per run
_BOX_OR_BRACE = re.compile(rf"{_BOX}|\\.|[{{}}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StatedAnswer:
    """The answer that a response gives."""

    text: str
    """The answer as written."""
    boxes: tuple[str, ...] = ()
    """Contents of the last boxes, in order. Shape: [<= BOXES]."""
    lines: tuple[str, ...] = ()
    """The line and the sentence that state the answer, if they are prose and `text` is only a
    formula in them.
    """


def read_answer(response: str) -> StatedAnswer | str:
    """Return the answer in a response, or the reason why the response gives no answer.

    The answer is the last closed, non-empty box, unless a final answer is stated after it. Without
    a box, the answer is the last statement ("Answer: (1, 2)"), or else the last formula or number.
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
            return StatedAnswer(final)
        boxes = tuple(_innermost(tail[start:end].strip()) for start, end in found)
        return StatedAnswer(boxes[-1], boxes)
    if unclosed:
        return "no answer: its box is never closed"
    tail = ascii_digits(tail)
    stated = last_statement(tail)
    if stated and not is_prose(stated[-1]):
        return StatedAnswer(stated[-1], lines=stated[:-1])
    text = last_expression(tail) or (stated[0] if stated else None)
    return (
        StatedAnswer(text, lines=stated)
        if text
        else "no answer: neither a box nor a formula nor a number"
    )


def last_box(response: str) -> str | None:
    """Return the content of the last closed box outside of thinking; None if there is no box."""
    tail = (strip_think(response) or "")[-TAIL:]
    found, _ = _boxes(tail)
    return _innermost(tail[slice(*found[-1])].strip()) if found else None


def last_line(response: str) -> str | None:
    """Return the last non-blank line outside of thinking, without "Answer:"."""
    line = last_lines(response, 1)
    return unlabelled(line.strip()) if line else None


def last_lines(response: str, n: int) -> str:
    """Return the last n non-blank lines outside of thinking, unchanged."""
    tail = (strip_think(response) or "")[-TAIL:]
    return "\n".join([line for line in tail.splitlines() if line.strip()][-n:])


def last_words(response: str) -> str | None:
    """Return the last line if it may be an answer in words; None if there is another answer.

    A box is another answer, and so is a plain statement; a sentence about the answer is not.
    """
    tail = (strip_think(response) or "")[-TAIL:]
    if any(_boxes(tail)) or any(not is_prose(text) for text in last_statement(tail)[:2]):
        return None
    return last_line(tail)


def gold_texts(answer: Answer) -> list[str]:
    """Return the alternatives of the gold answer as text; [] if the sample has no gold answer.

    Floats are written without an exponent, so that 1e-07 from JSON is read as a decimal.
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
    """Return the spans of the last outermost, non-empty boxes, and whether a box is unclosed.

    The text before the first box is skipped, since no brace in it can close a box.
    """
    named = [at for at in (text.find("boxed"), text.find("fbox")) if at >= 0]
    if not named:
        return [], False
    begin = len(text[: min(named)].rstrip("\\"))
    open_: list[int | None] = []  # start of a box's content; None for other braces
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
    """Return the answer inside nested boxes; leave a box unchanged if it is too long for one."""
    # Bounded, because each round scans the box again: nested boxes
    # would take quadratic time.
    while len(box) <= TAIL // BOXES and (inner := _boxes(box)[0]):
        box = box[slice(*inner[-1])].strip()
    return box
