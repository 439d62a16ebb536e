"""The result of a comparison in plain words: a headline, and the lines that explain it."""

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_practice.core.stats.intervals import Interval
from grpo_practice.core.stats.paired import ALPHA, Difference, Verdict
from grpo_practice.core.text import count

DETECT = 0.05
"""Difference that matters, as a share, unless the user names another one."""
_HEADLINES: Mapping[Verdict, str] = {
    "better": "Better",
    "worse": "Worse",
    "none found": "No difference found",
    "too few": "Not enough questions to tell",
    "missing": "Not enough scored answers to tell",
}


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The result of a comparison, for readers without statistics."""

    headline: str
    """Verdict without numbers, such as `Better`."""
    lines: Mapping[str, str]
    """Label → text, such as `difference` → `+26.2 points (95 % interval +12.2 to +40.3)`."""

    @property
    def tone(self) -> str:
        """`good` or `bad` if there is a difference, else empty; for colors."""
        return {"Better": "good", "Worse": "bad"}.get(self.headline, "")

    @property
    def sentence(self) -> str:
        """Headline and difference in one line, where there is no room for all lines."""
        return f"{self.headline}, {self.lines['difference']}"


def headline(verdict: Verdict, ci95: Interval, detect: float = DETECT) -> str:
    """Return the verdict in words.

    If no difference was found, the questions are enough if the interval excludes a difference that
    matters. Otherwise they are too few, because such a difference may exist.

    Args:
        verdict: Result of the test, which takes earlier looks at the questions into account.
        ci95: 95 % interval of the difference.
        detect: Difference that matters, as a share.
    """
    enough = max(map(abs, ci95)) <= detect
    return _HEADLINES["too few" if verdict == "none found" and not enough else verdict]


def points(value: float, *, signed: bool = False) -> str:
    """Format a share in percentage points: `8.1`; signed, `+8.1` or `-3.1`."""
    return f"{100 * value:{'+' if signed else ''}.1f}"


def spread(low: float, high: float) -> str:
    """Format the ends of a range of differences: `-3.1 to +8.1`."""
    return f"{points(low, signed=True)} to {points(high, signed=True)}"


def p_value(value: float) -> str:
    """Format a p value as `.007`, with more digits if rounding would cross the threshold."""
    if value < 0.0005:
        return "< .001"
    if value > 0.9995:
        return "> .999"
    told = (f"{value:.{digits}f}" for digits in range(3, 17))
    side = value < ALPHA
    return str(next((p for p in told if (float(p) < ALPHA) == side), value)).replace("0.", ".", 1)


def change(ratio: float, less: str) -> str:
    """Format a change as ` (4 % fewer)` or ` (6.2 times as much)`; empty for less than 1 %."""
    if ratio >= 2:
        return f" ({ratio:.1f} times as {'many' if less == 'fewer' else 'much'})"
    percent = round(100 * (ratio - 1))
    return f" ({abs(percent)} % {'more' if percent > 0 else less})" if percent else ""


def without_score(of: Difference) -> str:
    """Return how the difference depends on answers without a score; empty if there are none."""
    if not (of.missing and of.worst and of.best):
        return ""
    against, with_it = (points(case.mean, signed=True) for case in (of.worst, of.best))
    return (
        f"{count(of.missing, 'answer')}; if all of them count against the change, the difference"
        f" is {against} points, and if all count for it, {with_it}"
    )
