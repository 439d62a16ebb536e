"""Exact comparison of plain decimals and fractions, without computer algebra.

A comparison is decided here only if math-verify would certainly agree: math-verify rounds decimals
to six places and ignores differences below 1e-15, so close cases are left to it.
"""

import re

_FAR = 10_000
"""Inverse of the difference above which two numbers are unequal in spite of any rounding."""
_PLACES = 6
"""Number of decimal places that math-verify compares."""
# Digits are bounded to keep comparisons fast; longer numbers are left to the worker.
_NUMBER = re.compile(
    r"(?P<sign>-?)(?:(?P<whole>[0-9]{1,9})(?:\.(?P<places>[0-9]{1,40}))?"
    r"|(?P<above>[0-9]{1,6})/(?P<below>[0-9]{1,6})"
    r"|\\[dt]?frac\{(?P<top>-?[0-9]{1,6})\}\{(?P<bottom>[0-9]{1,6})\})"
)


_DECIMAL_COMMA = re.compile(r"(-?)([0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+),([0-9]+)")
_SURELY_A_COMMA = re.compile(r"-?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]{4,}),[0-9]{1,2}")
"""A gold answer that certainly uses a decimal comma; `3,5` may be two numbers."""


def with_point(text: str) -> str | None:
    """Return a number such as `1.000,99` with a decimal point; None for other text.

    The function `notation` has already removed commas between thousands.
    """
    match = _DECIMAL_COMMA.fullmatch(text)
    return f"{match[1]}{match[2].replace('.', '')}.{match[3]}" if match else None


def is_number(text: str) -> bool:
    """Return whether the text is a plain decimal or fraction."""
    return _read(text) is not None


def equal(gold: str, said: str) -> bool | None:
    """Return whether two numbers are equal; None if either is not plain, or if they are too close.

    Both numbers must be normalised by `notation`. Treating a comma as a decimal comma can only make
    the numbers equal, never unequal, because `3,5` may also be two numbers.
    """
    if _SURELY_A_COMMA.fullmatch(gold):
        return equal(with_point(gold) or "", with_point(said) or said) or None
    if spelled := with_point(said):
        return equal(gold, spelled) or None
    one, other = _read(gold), _read(said)
    if one is None or other is None:
        return None
    (a, b, exact), (c, d, also_exact) = one, other
    difference = abs(a * d - c * b)
    if difference * _FAR > b * d:
        return False
    return True if difference == 0 and exact and also_exact else None


def _read(text: str) -> tuple[int, int, bool] | None:
    """Return numerator, denominator, and whether math-verify compares the number unrounded."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    places = match["places"] or ""
    if match["whole"]:
        above, below = int(match["whole"] + places), 10 ** len(places)
    else:
        above, below = int(match["above"] or match["top"]), int(match["below"] or match["bottom"])
    if below == 0:
        return None
    return -above if match["sign"] else above, below, len(places) <= _PLACES
