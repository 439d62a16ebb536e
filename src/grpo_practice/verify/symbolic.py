"""math-verify, with its own timeouts off: importing this takes half a second.

Reading may block for long and take much memory on hostile input, so only `worker` and the check of
golds, which are trusted more, call it.
"""

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from antlr4.atn.PredictionMode import PredictionMode  # type: ignore[import-untyped]
from latex2sympy2_extended import latex2sympy2
from math_verify import LatexExtractionConfig, parse, parser, verify
from sympy import Basic, FiniteSet, MatrixBase
from typing_extensions import override

from grpo_practice.verify.notation import notation
from grpo_practice.verify.same_text import as_text

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeouts are off

_LATEX = [LatexExtractionConfig(boxed_match_priority=-1)]
_INNER_DOLLAR = re.compile(r"\\?\$")
_POWER = re.compile(r"[A-Za-z]\s*\^")
"""Notation that the quick reader is known to give up on."""
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}|\\text|\\in\b")
"""Language beside a relation: "and", "or"."""
_RELATION = re.compile(r" +(?=[<>=])|(?<=[<>=]) +")
"""Spaces around a relation, at the second of which math-verify ends `b > a > c`."""
_LAST_TERM = re.compile(
    r"(\\(?:[lg]e(?:q|qslant)?|neq?|cdot|times|div|pm|mp|equiv|approx))\s+([A-Za-z])\s*$"
)
"""Letter after an operator, which math-verify takes for a unit and leaves out."""
_LAST_FACTOR = re.compile(r"^((?:[^=\\]*[^=\\A-Za-z])?[A-Za-z](?![A-Za-z])[^=\\]*\d)([A-Za-z])$")
"""The same after a number, in a text of variables: `x+2c`, and neither `2 m` nor `x=2m`."""
_SET_BUILDER = re.compile(
    r"\\\{\s*([a-z])\s*(?:\||:|\\mid\b)\s*([^|:,;{}]*(?:[<>]|\\[lg]eq?(?:slant)?\b)[^|:,;{}]*)\\\}"
)
"""Set of the numbers that a relation holds for; math-verify reads the relation alone."""


class _Quick(latex2sympy2._Latex2Sympy):  # type: ignore[misc]  # the library has no types
    """The library's reader, with the cheaper of ANTLR's two ways to predict.

    ANTLR promises that it gives the same tree as the full way, or an error.
    """

    @override
    def create_parser(self, latex_str: str) -> Any:
        made = super().create_parser(latex_str)
        made._interp.predictionMode = PredictionMode.SLL
        return made


def _latex2sympy(latex: str, *, is_real: bool, convert_degrees: bool, **given: Any) -> Any:
    """Read as the library does; sets in a fifth of its time, relations in a half."""
    if not _POWER.search(latex):
        with suppress(Exception):  # the reader raises Exception itself
            return _Quick(None, is_real, convert_degrees).parse(latex)
    return latex2sympy2.latex2sympy(
        latex, is_real=is_real, convert_degrees=convert_degrees, **given
    )


# In that module: parse() looks the name up there.
parser.latex2sympy = _latex2sympy


def read(latex: str) -> list[Any]:
    """Return what math-verify makes of an answer: the expression, if any, and the text."""
    text = _RELATION.sub("", _INNER_DOLLAR.sub("", latex))
    text = _LAST_TERM.sub(r"\1(\2)", text)
    text = _LAST_FACTOR.sub(r"\1(\2)", text)
    built = _SET_BUILDER.fullmatch(text)
    if built and not _WORDS.search(built[2]):
        text = built[2]
    # Without the library's timeout, a SIGALRM: it works in a main thread only, and not amid C code.
    # The worker is killed instead.
    return parse(f"${text}$", _LATEX, parsing_timeout=None) if text else []


def readable(latex: str) -> bool:
    """Return True when the text is mathematics to math-verify."""
    return _is_mathematics(read(latex))


def _is_mathematics(parts: list[Any]) -> bool:
    return any(isinstance(part, Basic | MatrixBase) for part in parts)


def matches(gold: str, said: str, boxes: Sequence[str]) -> bool | None:
    """Return True when the answer equals the gold; None when the answer is not mathematics.

    A gold of n values may also be answered by the last n boxes, one value in each. A gold that is
    not mathematics equals its own text.
    """
    golds = _kept(gold)
    if not _is_mathematics(golds):
        # Not by `verify`: it would compare what was read of the texts, which may be a first word.
        return as_text(gold) == as_text(said)
    answers = read(said)
    if _equal(golds, answers):
        return True
    several = next((len(g) for g in golds if isinstance(g, FiniteSet)), 1)
    if several > 1 and len(boxes) >= several:
        together = ",".join(notation(box) for box in boxes[-several:])
        return _equal(golds, read(together))
    return False if _is_mathematics(answers) else None


_kept = lru_cache(256)(read)
"""A gold comes again with each answer to its question."""


def know(gold: str) -> None:
    """Read a gold now, so that the comparisons with it need not."""
    _kept(gold)


def _equal(golds: list[Any], answers: list[Any]) -> bool:
    # Gold first: the library treats its two arguments differently.
    return bool(verify(golds, answers, timeout_seconds=None))
