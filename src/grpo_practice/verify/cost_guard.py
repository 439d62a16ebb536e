"""Texts that no computer algebra system is given, since they would cost it minutes."""

import re
from math import inf, lgamma, log, log10

from grpo_practice.verify.notation import LONGEST

DIGITS = 10_000
"""The most digits a power or a factorial may have."""

_GROUPING = re.compile(r"\\left|\\right|\\[,;:! ]|[{}()\[\]\s]")
_TOWER = re.compile(r"\d+!*(?:\^-?\d+!*)+|\d+!+")
_DEEP = 50


def too_costly(text: str) -> str | None:
    """Return why the text is not read as mathematics; None when it is harmless enough to try.

    The guard knows towers of numbers and factorials; the rest is left to the limits of the workers.
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
    """Count how deep the brackets of any kind are nested."""
    depth = deepest = 0
    for char in text:
        if char in "({[":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")}]" and depth:
            depth -= 1
    return deepest


def _digits(tower: str) -> float:
    """Estimate how many digits `a!^b!^c` has, without computing it."""
    digits, exponent = 0.0, 1.0
    for part in reversed(tower.split("^")):
        base = part.strip("-!")
        # log10(0) is an error.
        digits = log10(max(int(base), 1))
        for _ in range(part.count("!")):
            # 100,000! has more than DIGITS digits already; further on, lgamma overflows.
            digits = lgamma(10**digits + 1) / log(10) if digits < 5 else inf
        digits = digits * exponent if digits else 0.0
        # A float ends at 10**308, with an OverflowError.
        exponent = 10**digits if digits < 300 else inf
    return digits
