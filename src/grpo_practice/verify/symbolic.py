"""Access to math-verify without its timeouts; importing this module takes half a second.

Parsing hostile input may take long and use much memory, so these functions are called only by
`worker` and by the check of gold answers, which are more trustworthy.
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

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns about disabled timeouts

_LATEX = [LatexExtractionConfig(boxed_match_priority=-1)]
_INNER_DOLLAR = re.compile(r"\\?\$")
_POWER = re.compile(r"[A-Za-z]\s*\^")
"""Notation that the fast parser is known to fail on."""
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}|\\text|\\in\b")
"""Prose next to a relation: "and", "or"."""
_RELATION = re.compile(r" +(?=[<>=])|(?<=[<>=]) +")
"""Spaces around a relation; math-verify stops reading `b > a > c` at the second relation."""
_LAST_TERM = re.compile(
    r"(\\(?:[lg]e(?:q|qslant)?|neq?|cdot|times|div|pm|mp|equiv|approx))\s+([A-Za-z])\s*$"
)
"""A letter after an operator; math-verify would drop it as a unit."""
_LAST_FACTOR = re.compile(r"^((?:[^=\\]*[^=\\A-Za-z])?[A-Za-z](?![A-Za-z])[^=\\]*\d)([A-Za-z])$")
"""A letter after a number in an expression with variables: `x+2c`, but neither `2 m` nor `x=2m`."""
_SET_BUILDER = re.compile(
    r"\\\{\s*([a-z])\s*(?:\||:|\\mid\b)\s*([^|:,;{}]*(?:[<>]|\\[lg]eq?(?:slant)?\b)[^|:,;{}]*)\\\}"
)
"""A set defined by a relation; math-verify reads only the relation."""


class _Quick(latex2sympy2._Latex2Sympy):  # type: ignore[misc]  # the library has no types
    """The library's parser with the cheaper of ANTLR's two prediction modes.

    ANTLR guarantees either the same tree as in the full mode or an error.
    """

    @override
    def create_parser(self, latex_str: str) -> Any:
        made = super().create_parser(latex_str)
        made._interp.predictionMode = PredictionMode.SLL
        return made


def _latex2sympy(latex: str, *, is_real: bool, convert_degrees: bool, **given: Any) -> Any:
    """Parse like the library, but take a fifth of the time for sets and half for relations."""
    if not _POWER.search(latex):
        with suppress(Exception):  # the parser raises bare Exception
            return _Quick(None, is_real, convert_degrees).parse(latex)
    return latex2sympy2.latex2sympy(
        latex, is_real=is_real, convert_degrees=convert_degrees, **given
    )


# Patch it in that module, where parse() looks the name up.
parser.latex2sympy = _latex2sympy


def read(latex: str) -> list[Any]:
    """Return math-verify's reading of an answer: the expression, if any, and the text."""
    text = _RELATION.sub("", _INNER_DOLLAR.sub("", latex))
    text = _LAST_TERM.sub(r"\1(\2)", text)
    text = _LAST_FACTOR.sub(r"\1(\2)", text)
    built = _SET_BUILDER.fullmatch(text)
    if built and not _WORDS.search(built[2]):
        text = built[2]
    # The library's timeout is a SIGALRM, which works only on the main thread and not inside C code.
    # The worker is killed instead.
    return parse(f"${text}$", _LATEX, parsing_timeout=None) if text else []


def readable(latex: str) -> bool:
    """Return whether math-verify reads the text as mathematics."""
    return _is_mathematics(read(latex))


def _is_mathematics(parts: list[Any]) -> bool:
    return any(isinstance(part, Basic | MatrixBase) for part in parts)


def matches(gold: str, said: str, boxes: Sequence[str]) -> bool | None:
    """Return True if the answer equals the gold answer; None if the answer is not mathematics.

    A gold answer with n values also matches the last n boxes with one value each. A gold answer
    that is not mathematics is compared as text.
    """
    golds = _kept(gold)
    if not _is_mathematics(golds):
        # Not `verify`: it would compare only the parsed part of the texts, perhaps a first word.
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
"""A cache for gold answers, each of which is needed again for every answer to its question."""


def know(gold: str) -> None:
    """Parse a gold answer now, so that later comparisons with it are fast."""
    _kept(gold)


def _equal(golds: list[Any], answers: list[Any]) -> bool:
    # The gold answer comes first: the library treats its two arguments differently.
    return bool(verify(golds, answers, timeout_seconds=None))
