"""Ranges of likely values, and arithmetic with them."""

from collections.abc import Iterable
from functools import reduce
from math import ceil, sqrt
from typing import NamedTuple

LEAST_SPREAD = 0.25
"""Minimum half-width, as a share of the mean, because future calls never equal past ones."""


class Range(NamedTuple):
    """A likely range."""

    low: float = 0.0
    high: float = 0.0

    def times(self, other: "Range") -> "Range":
        """Return the range of the product."""
        return Range(self.low * other.low, self.high * other.high)

    def plus(self, other: "Range") -> "Range":
        """Return the range of the sum."""
        return Range(self.low + other.low, self.high + other.high)

    def whole(self) -> "Range":
        """Return the range in whole numbers, with the upper end rounded up."""
        return Range(int(self.low), ceil(self.high))


ONE = Range(1, 1)


def total(ranges: Iterable[Range]) -> Range:
    """Return the range of the sum."""
    return reduce(Range.plus, ranges, Range())


def around(mean: float, spread: float, seen: int, to_come: float) -> Range:
    """Return the likely mean of future calls: within two standard errors of the past mean."""
    error = 2 * spread * sqrt(1 / seen + 1 / max(to_come, 1.0))
    width = max(error, LEAST_SPREAD * mean)
    return Range(max(mean - width, 0.0), mean + width)
