"""math-verify, with its own timeouts off: importing this takes half a second.

It may block for long and take much memory on hostile input, so only `worker` and the check of
golds, which are trusted more, call it.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, FiniteSet, MatrixBase

from grpo_practice.verify.notation import notation

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeouts are off

_LATEX = [LatexExtractionConfig(boxed_match_priority=-1)]
_INNER_DOLLAR = re.compile(r"\\?\$")


def read(latex: str) -> list[Any]:
    """What math-verify makes of an answer: the expression where there is one, and the text."""
    text = _INNER_DOLLAR.sub("", latex)
    return parse(f"${text}$", _LATEX, parsing_timeout=None) if text else []


def readable(latex: str) -> bool:
    """True when the text is mathematics to math-verify."""
    return any(isinstance(part, Basic | MatrixBase) for part in read(latex))


def matches(gold: str, said: str, boxes: Sequence[str]) -> bool | None:
    """True when the answer equals the gold; None when the answer is not mathematics.

    A gold of n values may also be answered by the last n boxes, one value in each.
    """
    golds, answers = read(gold), read(said)
    if _equal(golds, answers):
        return True
    several = next((len(g) for g in golds if isinstance(g, FiniteSet)), 1)
    if several > 1 and len(boxes) >= several:
        together = ",".join(notation(box) for box in boxes[-several:])
        return _equal(golds, read(together))
    return False if any(isinstance(a, Basic | MatrixBase) for a in answers) else None


def _equal(golds: list[Any], answers: list[Any]) -> bool:
    return bool(verify(golds, answers, timeout_seconds=None))
