"""Plain decimals and fractions, compared exactly and without computer algebra.

The values of two numbers decide only where math-verify cannot say otherwise: it rounds decimals
to six places and drops differences below 1e-15, so a close call is left to it.
"""

import re

_FAR = 10_000
"""Numbers that are more than 1 / this apart are different, whatever is rounded."""
_PLACES = 6
"""Decimals that math-verify compares."""
# Digits are bounded, so that to compare takes no time; longer ones are the worker's.
_NUMBER = re.compile(
    r"(?P<sign>-?)(?:(?P<whole>[0-9]{1,9})(?:\.(?P<places>[0-9]{1,40}))?"
    r"|(?P<above>[0-9]{1,6})/(?P<below>[0-9]{1,6})"
    r"|\\[dt]?frac\{(?P<top>-?[0-9]{1,6})\}\{(?P<bottom>[0-9]{1,6})\})"
)


_DECIMAL_COMMA = re.compile(r"(-?)([0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+),([0-9]+)")
_SURELY_A_COMMA = re.compile(r"-?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]{4,}),[0-9]{1,2}")
"""Number in a gold, where `3,5` are two."""


def with_point(text: str) -> str | None:
    """Return a number with a decimal comma, as in `1.000,99`, with a point; None for other text.

    Commas between thousands are gone from the notation of `notation`.
    """
    match = _DECIMAL_COMMA.fullmatch(text)
    return f"{match[1]}{match[2].replace('.', '')}.{match[3]}" if match else None


def is_number(text: str) -> bool:
    """Return True for a plain decimal or fraction."""
    return _read(text) is not None


def equal(gold: str, said: str) -> bool | None:
    """Return whether two numbers are equal; None when one is not plain, or it is too close to tell.

    Both are in the notation of `notation`. A decimal comma can only make them equal: `3,5` may as
    well be two numbers.
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
    """Return numerator, denominator, and whether math-verify rounds nothing away."""
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
