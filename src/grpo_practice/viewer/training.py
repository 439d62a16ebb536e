"""The course of a training run for a page: charts, numbers and checkpoints."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from grpo_practice.reports.training import TrainedParts, UpdateRow
from grpo_practice.store.records import StepRow
from grpo_practice.viewer.charts import Tick, steps_text

HEIGHT = 120
"""Height of a chart in pixels, without its labels."""
MARGIN = 6
"""Pixels above the largest and below the smallest value, so that marks there are not clipped."""
MOST = 100
"""Maximum number of marks across a chart and of rows in its table; longer runs combine consecutive
steps.
"""
LABELS = 5
"""Approximate number of labels below a chart."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive steps shown as one mark: means of their last updates, sums of their totals."""

    first: int
    last: int
    reward: float | None
    informative: int
    """Groups that taught something."""
    groups: int
    uniform: float | None
    """Share of groups with equal rewards."""
    loss: float | None
    kl: float | None
    entropy: float | None
    grad_norm: float | None
    clipped: float | None
    learning_rate: float | None
    tokens: int
    seconds: float
    selection: float | None
    """Last score of its weights on the selection questions."""

    @property
    def name(self) -> str:
        """The steps in words."""
        return steps_text(self.first, self.last)


def stretches(rows: Sequence[StepRow], trained: TrainedParts, most: int = MOST) -> list[Stretch]:
    """Return the closed steps in order, combined into at most `most` stretches."""
    by_step = trained.by_step
    closed = [row for row in rows if row.closed and row.plan.step in by_step]
    size = max(-(-len(closed) // most), 1)
    return [_stretch(closed[n : n + size], trained) for n in range(0, len(closed), size)]


def _stretch(rows: Sequence[StepRow], trained: TrainedParts) -> Stretch:
    updates = [trained.by_step[row.plan.step] for row in rows]
    stats = [row.stats or {} for row in rows]
    scores = [trained.selection.get(row.plan.step) for row in rows]

    def mean(value: Callable[[UpdateRow], float | None]) -> float | None:
        return _mean([value(update) for update in updates])

    return Stretch(
        first=rows[0].plan.step,
        last=rows[-1].plan.step,
        reward=_mean([of.get("mean_reward") for of in stats]),
        informative=sum(of.get("informative") or 0 for of in stats),
        groups=sum(row.groups for row in rows),
        uniform=mean(lambda of: of.uniform_share),
        loss=mean(lambda of: of.loss),
        kl=mean(lambda of: of.kl),
        entropy=mean(lambda of: of.entropy),
        grad_norm=mean(lambda of: of.grad_norm),
        clipped=mean(lambda of: of.clipped),
        learning_rate=mean(lambda of: of.learning_rate),
        tokens=sum(update.tokens for update in updates),
        seconds=sum(of.get("seconds") or 0.0 for of in stats),
        selection=next((score for score in reversed(scores) if score is not None), None),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known, finite values; an imported database may hold infinities."""
    known = [value for value in values if isinstance(value, float | int) and math.isfinite(value)]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class Dot:
    """A value on a chart: x in percent of the width, y in pixels from the top."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Chart:
    """One metric over the steps."""

    id: str
    title: str
    sentence: str
    """First and last value in words, for readers who cannot see the chart."""
    line: Sequence[tuple[Dot, Dot]]
    """Segments of the line, from dot to dot."""
    ends: Sequence[Dot]
    """Dots without a line, so that a single value is visible."""
    marks: Sequence[Dot]
    """Scores on the selection questions."""
    lines: Sequence[tuple[float, str]]
    """Height in pixels and label of each horizontal line."""
    ticks: Sequence[Tick]


def charts_of(found: Sequence[Stretch]) -> list[Chart]:
    """Return the charts of a training run: rewards, uniform groups and loss."""
    if not found:
        return []
    whole = (0.0, 1.0)
    scores = [one.selection for one in found]
    losses = [one.loss for one in found]
    return [
        _chart("reward", "Mean reward", [one.reward for one in found], found, whole, scores),
        _chart(
            "uniform",
            "Share of groups that are not informative",
            [o.uniform for o in found],
            found,
            whole,
        ),
        _chart("loss", "Loss", losses, found, _span(losses)),
    ]


def _chart(
    id_: str,
    title: str,
    values: Sequence[float | None],
    found: Sequence[Stretch],
    span: tuple[float, float],
    scores: Sequence[float | None] = (),
) -> Chart:
    places = [round(100 * (n + 0.5) / len(found), 3) for n in range(len(found))]

    def dots(of: Sequence[float | None]) -> list[Dot]:
        known = zip(places, of, strict=False)
        return [Dot(x, _height(value, span)) for x, value in known if value is not None]

    line = [*pairwise(dots(values))]
    known = [value for value in values if value is not None]
    said = f"{title}: {known[0]:.3g} first, {known[-1]:.3g} last." if known else ""
    return Chart(
        id=id_,
        title=title,
        sentence=said,
        line=line,
        ends=[] if line else dots(values),
        marks=dots(scores),
        lines=[(_height(value, span), f"{value:.2g}") for value in sorted({*span, sum(span) / 2})],
        ticks=_ticks(found, places),
    )


def _span(values: Sequence[float | None]) -> tuple[float, float]:
    """Return the ends of a scale for all values; equal values still get a scale of some height."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    # Relative, because equal values may differ by rounding, at any magnitude.
    if high - low > 1e-12 * max(abs(low), abs(high)):
        return low, high
    return low - (abs(low) or 1.0), high + (abs(high) or 1.0)


def _height(value: float, span: tuple[float, float]) -> float:
    low, high = span
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return round(MARGIN + (1 - share) * (HEIGHT - 2 * MARGIN), 1)


def _ticks(found: Sequence[Stretch], places: Sequence[float]) -> list[Tick]:
    """Return labels of some steps, including the first and the last."""
    every = max(-(-(len(found) - 1) // LABELS), 1)
    shown = sorted({*range(0, len(found), every), len(found) - 1})
    # The last label would overlap one that is too close.
    if len(shown) > 2 and shown[-1] - shown[-2] < every / 2:
        del shown[-2]
    return [Tick(places[n], str(found[n].first), "middle") for n in shown]


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """A checkpoint on a page."""

    step: int
    path: str
    sha: str
    """First digits of the hash."""
    size: str
    selection: float | None


class Course:
    """Course of a training run."""

    def __init__(self, rows: Sequence[StepRow], trained: TrainedParts) -> None:
        self.rows, self.trained = rows, trained
        self.height = HEIGHT
        self.stretches = stretches(rows, trained)
        self.charts = charts_of(self.stretches)

    @property
    def sentence(self) -> str:
        """Explanation of a mark on the charts."""
        together = max((one.last - one.first + 1 for one in self.stretches), default=1)
        many = f" Each mark is the mean of {together} steps." if together > 1 else ""
        return (
            "These are rewards of each step's own rollouts, on different questions, and not"
            f" scores.{many}"
        )

    @property
    def tokens(self) -> int:
        """Tokens of all prompts and answers."""
        return sum(one.tokens for one in self.stretches)

    @property
    def seconds(self) -> float:
        """Wall time of all steps."""
        return sum(one.seconds for one in self.stretches)

    @property
    def checkpoints(self) -> list[CheckpointLine]:
        """Checkpoints on the run's current line, in order."""
        return [
            CheckpointLine(
                row.step,
                row.path,
                row.sha256.hex()[:8],
                _size(row.bytes),
                self.trained.selection.get(row.step),
            )
            for row in self.trained.checkpoints
        ]


def _size(n: int) -> str:
    """Format a size: `17 bytes`, `3.1 MB`."""
    if n < 1_000:
        return f"{n} bytes"
    return f"{n / 1e3:.0f} KB" if n < 1_000_000 else f"{n / 1e6:,.1f} MB"
