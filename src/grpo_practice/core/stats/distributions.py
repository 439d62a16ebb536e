"""Student's t and the beta distribution, with the same results as scipy.

Importing scipy would take longer than everything else in a command that shows one score.
"""

import math

_ROUNDING = 2.3e-16
_TINY = 1e-300
"""Stands for 0 in the continued fraction, which divides by its parts."""


def beta_below(x: float, a: float, b: float) -> float:
    """Return the probability below `x` of the beta distribution."""
    return _below(x, 1 - x, a, b)


def beta_point(share: float, a: float, b: float) -> float:
    """Return the quantile of the beta distribution for this share."""
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(200):
        below = beta_below(x, a, b)
        low, high = (low, x) if below > share else (x, high)
        # Take Newton's step in logarithms: near 0 the distribution is a straight line in them.
        slope = _density(x, 1 - x, a, b) / (1 - x)
        nearer = -1.0
        if below * slope:
            nearer = x * math.exp(min(math.log(share / below) * below / slope, 700))
        if not low <= nearer <= high:
            nearer = (low + high) / 2
        moved, x = abs(nearer - x), nearer
        if not 0 < x < 1 or moved < 1e-8 * min(x, 1 - x):  # the remaining error is about its square
            break
    return x


def t_beyond(t: float, df: float) -> float:
    """Return the probability that Student's t is further from 0 than `t`: the two-sided p."""
    if not math.isfinite(t):
        return 0.0
    squared = t * t
    return _below(df / (df + squared), squared / (df + squared), df / 2, 0.5)


def t_point(tail: float, df: float) -> float:
    """Return the quantile of Student's t with this probability above it; `tail` is below 0.5."""
    if df < 1:
        x = beta_point(2 * tail, df / 2, 0.5)
        return math.sqrt(df * (1 - x) / x)
    x = beta_point(1 - 2 * tail, 0.5, df / 2)
    return math.sqrt(df * x / (1 - x))


def shifted_t_below(t: float, df: float, shift: float) -> tuple[float, float]:
    """Return the probability that noncentral t is below `t`, and its derivative by the shift.

    Noncentral t is (Z + shift) / W, where W² is chi-square over df. The trapezoid rule over W is
    accurate to about 10 digits, because its density vanishes at both ends.
    """
    low, high = max(1 - 7 / math.sqrt(df), 0.0), 1 + 7 / math.sqrt(df)
    points = [low + (high - low) * n / 160 for n in range(1, 160)]
    weights = [math.exp((df - 1) * math.log(w) - df * (w * w - 1) / 2) for w in points]
    z = [t * w - shift for w in points]
    below = sum(
        weight * math.erfc(-x / math.sqrt(2)) / 2 for weight, x in zip(weights, z, strict=True)
    )
    slope = sum(weight * math.exp(-x * x / 2) for weight, x in zip(weights, z, strict=True))
    return below / sum(weights), -slope / math.sqrt(2 * math.pi) / sum(weights)


def _below(x: float, y: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function; `y` is 1 - x."""
    if x <= 0 or y <= 0:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _below(y, x, b, a)
    # The continued fraction of DiDonato and Morris, evaluated from its front (Lentz).
    fraction, c, d = _TINY, _TINY, 0.0
    for n in range(10_000):
        k = n // 2
        if n == 0:
            term = 1.0
        elif n % 2:
            term = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))
        else:
            term = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
        d = 1 / ((1 + term * d) or _TINY)
        c = (1 + term / c) or _TINY
        fraction *= c * d
        if n and abs(c * d - 1) <= _ROUNDING:
            break
    return _density(x, y, a, b) * fraction / a


def _density(x: float, y: float, a: float, b: float) -> float:
    """Return the density of the beta distribution, times x y; `y` is 1 - x.

    Large terms of the gamma functions are cancelled by hand, so that no digits are lost.
    """
    n, off = a + b, b * x - a * y
    near = a * _log(x * n / a, off / a) + b * _log(y * n / b, -off / b)
    return math.sqrt(a * b / (2 * math.pi * n)) * math.exp(near + _rest(n) - _rest(a) - _rest(b))


def _log(value: float, above_1: float) -> float:
    return math.log1p(above_1) if abs(above_1) < 0.5 else math.log(value)


def _rest(z: float) -> float:
    """Return log Γ(z) minus Stirling's formula."""
    if z < 10:
        return math.lgamma(z) - (z - 0.5) * math.log(z) + z - math.log(2 * math.pi) / 2
    squared = z * z
    series = 1 / 1188
    for factor in (-1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        series = factor + series / squared
    return series / z
