"""From the least to the most that is likely."""

from collections.abc import Iterable
from functools import reduce
from math import sqrt
from typing import NamedTuple

LEAST_SPREAD = 0.25
"""Least half-width, as a share of the mean: calls to come are never quite like those that were."""


class Range(NamedTuple):
    """The least and the most that is likely."""

    low: float = 0.0
    high: float = 0.0

    def times(self, other: "Range") -> "Range":
        """Return the range of the product."""
        return Range(self.low * other.low, self.high * other.high)

    def plus(self, other: "Range") -> "Range":
        """Return the range of the sum."""
        return Range(self.low + other.low, self.high + other.high)

    def whole(self) -> "Range":
        """Return the same in whole numbers, the upper one rounded up."""
        return Range(int(self.low), -int(-self.high // 1))


ONE = Range(1, 1)


def total(ranges: Iterable[Range]) -> Range:
    """Return the range of the sum."""
    return reduce(Range.plus, ranges, Range())


def around(mean: float, spread: float, seen: int, to_come: float) -> Range:
    """Return the likely mean of the calls to come: within two standard errors of this one."""
    error = 2 * spread * sqrt(1 / seen + 1 / max(to_come, 1.0))
    width = max(error, LEAST_SPREAD * mean)
    return Range(max(mean - width, 0.0), mean + width)
