"""Rejects texts that would keep a computer algebra system busy for minutes."""

import re
from math import inf, lgamma, log, log10

from grpo_practice.verify.notation import LONGEST

DIGITS = 10_000
"""Maximum number of digits in the value of a power or a factorial."""

_GROUPING = re.compile(r"\\left|\\right|\\[,;:! ]|[{}()\[\]\s]")
_TOWER = re.compile(r"\d+!*(?:\^-?\d+!*)+|\d+!+")
_DEEP = 50


def too_costly(text: str) -> str | None:
    """Return why the text is too costly to parse as mathematics; None if it is cheap enough to try.

    The guard detects towers of powers and factorials; the workers' limits catch everything else.
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
    """Return the greatest nesting depth of brackets of any kind."""
    depth = deepest = 0
    for char in text:
        if char in "({[":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")}]" and depth:
            depth -= 1
    return deepest


def _digits(tower: str) -> float:
    """Estimate the number of digits of `a!^b!^c` without computing it."""
    digits, exponent = 0.0, 1.0
    for part in reversed(tower.split("^")):
        base = part.strip("-!")
        # log10(0) raises.
        digits = log10(max(int(base), 1))
        for _ in range(part.count("!")):
            # 100,000! already has more than DIGITS digits; for larger numbers lgamma overflows.
            digits = lgamma(10**digits + 1) / log(10) if digits < 5 else inf
        digits = digits * exponent if digits else 0.0
        # Floats end at 10**308 with an OverflowError.
        exponent = 10**digits if digits < 300 else inf
    return digits
