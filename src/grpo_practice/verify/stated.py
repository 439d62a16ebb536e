r"""Answers that a text states, such as `Answer: (1, 2)` or `So the final answer is 12`.

All functions take time linear in the length of the text.
"""

import re
from collections import deque
from collections.abc import Sequence

from grpo_practice.verify.expressions import EXPRESSION, is_prose, last_expression

_NOUN = r"(?:answer|result)[*_]{0,9}[ \t]{0,9}(?:is|are|:|=)[ \t:*_]{0,20}"
_LABEL = re.compile(
    r"(?:^[^\w\n]{0,40}|(?<=[.!?:;][ \t]))(?:(?:so|thus|hence|therefore),?[ \t]{1,9})?"
    rf"(?:(?:the|my)[ \t]{{1,9}})?(?:(?:final|correct)[ \t]{{1,9}})?{_NOUN}"
    rf"|\bfinal[ \t]{{1,9}}{_NOUN}"
    r"|(?<!if )(?<!whether )\bthe[ \t]answer[ \t](?:is|:)[ \t:*_]{0,20}"
    r"|^[*_]{0,9}a:[*_ \t]{0,20}|^#{4}[ \t]{0,20}",
    re.IGNORECASE | re.MULTILINE,
)
_FINAL = re.compile(rf"\bfinal[ \t]{{1,9}}{_NOUN}", re.IGNORECASE)
_SENTENCE = re.compile(r"[.!?][*_]{0,9}(?=[ \t]+[^a-z\s]|[ \t]*$)")
_BESIDES = re.compile(
    r"[,;]?\s(?:because|since|as|from|see|where|which|with|after|but)\b|[,;]?\s\((?![\d.,\s-]+\))",
    re.IGNORECASE,
)
_REASON = re.compile(r"[,;]?\s(?:because|since)\b", re.IGNORECASE)
_HEDGE = re.compile(r"(?:about|approximately|roughly|exactly|simply|just|only|equal to)\s", re.I)
_FORMULA = re.compile(r"\$\$[^$]+\$\$|\$[^$]+\$(?!\d)|\\\((?:[^\\]|\\(?!\)))+\\\)")
_WORKED_OUT = re.compile(r"=|\b(?:times|plus|minus|divided|that is|so)\b", re.IGNORECASE)
_NEAR = 2_000
"""Number of characters read from the start of a final answer."""
_SURE = 40
"""Maximum number of characters in the words that follow a final answer if it is to overrule a
box.
"""


def unlabelled(line: str) -> str:
    """Return a line without "Answer:" at its start."""
    match = _LABEL.match(line)
    return line[match.end() :] if match and match[0].strip() else line


def last_statement(tail: str) -> tuple[str, ...]:
    """Return the text after the last "the answer is": its line, its sentence, and its answer.

    A single short line counts as a statement. If nothing is stated, an empty tuple is returned.
    """
    lines = [line for line in tail.splitlines() if line.strip()]
    # Search backwards: most answers are in the last line, so no other line is searched.
    for at in range(len(lines) - 1, -1, -1):
        for match in reversed(deque(_LABEL.finditer(lines[at]), maxlen=4)):
            stated = _after(lines, at, match.end())
            if stated and not stated.lower().startswith("not "):
                return _read(stated)
    if len(lines) == 1 and len(lines[0].strip()) <= 200:
        return (_bare(lines[0]),)
    return ()


def final_after(tail: str, start: int) -> str | None:
    """Return the final answer stated after a position; None unless it is clearly an answer."""
    for match in reversed(deque(_FINAL.finditer(tail, start), maxlen=4)):
        lines = tail[match.start() : match.start() + _NEAR].splitlines()
        line, *parts = _read(_after(lines, 0, match.end() - match.start()))
        if not is_prose(line) and any(map(str.isdigit, line)):
            return line
        for text in parts:
            rest = line.partition(text)[2]
            if is_prose(text) or not line.startswith(text) or not any(map(str.isdigit, text)):
                continue
            sentence = _SENTENCE.split(rest, maxsplit=1)[0]
            if len(sentence) <= _SURE and not any(map(str.isdigit, sentence)):
                return text
    return None


def _after(lines: Sequence[str], at: int, start: int) -> str:
    """Return the rest of a line; if the rest is empty, return the next line unless it is prose."""
    rest = lines[at][start:]
    if rest.strip(" \t*_`:"):
        return _bare(rest)
    following = _bare(next((line for line in lines[at + 1 :] if line.strip()), ""))
    return "" if is_prose(following) else following


def _read(stated: str) -> tuple[str, ...]:
    """Return the stated line and, if it is prose, its parts from the sentence inwards.

    In the result, the words before a reason come before the whole sentence, and the answer inside
    the sentence comes last.
    """
    if not is_prose(stated):
        return (stated,)
    end = _SENTENCE.search(stated)
    sentence = _bare(stated[: end.start()] if end else stated)
    if not is_prose(sentence):
        return stated, sentence
    words = _bare(_REASON.split(sentence, maxsplit=1)[0])
    texts = (stated, sentence) if words == sentence else (stated, words, sentence)
    clause = _BESIDES.split(sentence, maxsplit=1)[0]
    hedged = _HEDGE.sub("", clause)
    leading = _FORMULA.match(hedged) or EXPRESSION.match(hedged)
    if leading and not _WORKED_OUT.search(hedged):
        return *texts, leading[0]
    last = last_expression(clause) or last_expression(sentence)
    return (*texts, last) if last else texts


def _bare(text: str) -> str:
    """Strip Markdown emphasis and the full stop that ends a sentence."""
    return text.strip(" \t\r*_`").rstrip(".").strip(" \t*_`")
