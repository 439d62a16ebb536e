"""Parses the wait that an endpoint's headers request; their content is arbitrary."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

LONGEST_WAIT_S = 120.0
"""Maximum wait, in seconds, that is slept through. If a longer wait is requested, the request
fails and the error states the wait.
"""
_ABSURD_S = 366 * 86_400.0

_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
# Bound the digits and exclude inf and nan: a header may contain anything that float() accepts.
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{0,20})?")


def asked_wait_s(headers: Mapping[str, str], status: int, now: float) -> float | None:
    """Return the wait in seconds that a response asks for; None if absent or implausible.

    `Retry-After-ms` takes precedence over `Retry-After`, which takes precedence over the largest of
    `x-ratelimit-reset-*`. These resets are considered only with a 429, since every response has
    them, and for at most `LONGEST_WAIT_S`, since they give the time when the whole allowance is
    free again, and a part of it is free earlier. Zero, negative and past times are ignored, and so
    are waits of more than a year.

    The header names are in lower case; `now` is in seconds since the epoch.
    """
    ms = _number(headers.get("retry-after-ms", ""))
    resets = [_duration_s(v) for k, v in headers.items() if k.startswith("x-ratelimit-reset-")]
    sensible = (min(s, LONGEST_WAIT_S) for s in resets if s is not None and s < _ABSURD_S)
    waits = [
        None if ms is None else ms / 1000,
        _retry_after_s(headers.get("retry-after", ""), now),
        max(sensible, default=None) if status == 429 else None,
    ]
    return next((s for s in waits if s is not None and 0 < s < _ABSURD_S), None)


def in_words(seconds: float) -> str:
    """Format a wait as `24 h`, `5 min` or `90 s`."""
    if seconds >= 7_200:
        return f"{seconds / 3_600:.0f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 180 else f"{seconds:.0f} s"


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _retry_after_s(text: str, now: float) -> float | None:
    seconds = _number(text)
    if seconds is not None:
        return seconds
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, OverflowError):
        # OverflowError: a year outside the range of timestamps.
        return None


def _duration_s(text: str) -> float | None:
    text = text.strip().lower()
    if not _DURATION.fullmatch(text):
        return _number(text)
    return sum(float(amount) * _UNITS_S[unit] for amount, unit in _PART.findall(text))
