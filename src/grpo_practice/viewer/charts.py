"""Chart coordinates. Widths are percentages and heights pixels, so that text keeps its size."""

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_practice.store.queries.pages import Life
from grpo_practice.viewer.story import Measured

HEIGHT = 200
"""Height of the learning curve in pixels, without its labels."""
MARGIN = 8
"""Pixels above a score of 1 and below a score of 0, so that marks there are not clipped."""
SHADES = 5
"""Number of shades for rewards from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A score and its interval on a line from 0 to 1, as percentages of its width."""

    at: float
    low: float
    high: float


def score_range(mean: float, interval: tuple[float, float] | None) -> Axis:
    """Return the position of a score; without an interval it is a point."""
    low, high = interval or (mean, mean)
    return Axis(*(_percent(value) for value in (mean, low, high)))


@dataclass(frozen=True, slots=True)
class Mark:
    """A measured score on the curve: x in percent of the width, y in pixels from the top."""

    x: float
    y: float
    top: float
    bottom: float
    measured: Measured
    name: str
    """Steps that made the library: `start`, `step 3`, `steps 3 to 5`."""
    until: float | None
    """x up to which the library stayed the same; None if it changed in the next step."""


@dataclass(frozen=True, slots=True)
class Column:
    """Mean reward of a practice step: x and width in percent, y and height in pixels."""

    x: float
    width: float
    y: float
    height: float
    step: int
    reward: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A label below the curve: x in percent, and the side of the text that is aligned with it."""

    x: float
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Learning curve of a practice run."""

    marks: Sequence[Mark]
    columns: Sequence[Column]
    ticks: Sequence[Tick]
    lines: Sequence[tuple[float, str]]
    """Height in pixels and label of each horizontal line."""


def curve(measured: Sequence[Measured], rewards: Sequence[tuple[int, float]], steps: int) -> Curve:
    """Return the learning curve over all steps, with a mark for each measured library."""
    places = steps + 1  # including the agent before the first step
    marks = [
        Mark(
            x=_centre(one.step + 1, places),
            y=_height(one.known.score.mean),
            top=_height(ends[1]),
            bottom=_height(ends[0]),
            measured=one,
            name=steps_text(one.step, one.last),
            until=_centre(one.last + 1, places) if one.last > one.step else None,
        )
        for one in measured
        if one.known.score.mean is not None
        for ends in [one.known.score.ci95 or (one.known.score.mean,) * 2]
    ]
    width = 100 / places
    columns = [
        Column(
            # 0.15 of a place is left free on either side.
            x=round((step + 1.15) * width, 3),
            width=round(0.7 * width, 3),
            y=_height(reward),
            height=round(_height(0.0) - _height(reward), 1),
            step=step,
            reward=reward,
        )
        for step, reward in rewards
    ]
    lines = [(_height(value), f"{value:.2f}".rstrip("0").rstrip(".")) for value in (0, 0.5, 1)]
    return Curve(marks, columns, _ticks(steps, places), lines)


def steps_text(first: int, last: int) -> str:
    """Return the steps of a library in words."""
    if first < 0:
        return "start"
    return f"step {first}" if last == first else f"steps {first} to {last}"


def _ticks(steps: int, places: int) -> list[Tick]:
    """Return at most six labels, including the first and the last."""
    every = max(1, -(-(steps - 1) // 4)) if steps else 1
    shown = sorted({*range(0, steps, every), steps - 1}) if steps else []
    # The last label would overlap one that is too close.
    if len(shown) > 2 and shown[-1] - shown[-2] < every / 2:
        del shown[-2]
    ticks = [Tick(_centre(0, places), "start", "middle")]
    ticks += [Tick(_centre(step + 1, places), str(step), "middle") for step in shown]
    # A centred label at the edge would be clipped.
    ticks[0] = Tick(0, "start", "start") if places > 8 else ticks[0]
    return ticks


@dataclass(frozen=True, slots=True)
class Lane:
    """Life of an experience over the steps of a run, as percentages of the width."""

    x: float
    width: float
    ticks: Sequence[float]
    """Positions at which its text changed."""
    ended: bool


def lane(life: Life, steps: int) -> Lane:
    """Return the positions at which an experience begins, changes and ends."""
    steps = max(steps, 1)
    begin = 0.0 if life.born is None else 100 * min(life.born, steps) / steps
    end = 100.0 if life.ended is None else 100 * min(life.ended + 1, steps) / steps
    changed = [change.step for change in life.changes if change.op == "UPDATE"]
    ticks = [round(100 * (step + 0.5) / steps, 3) for step in changed if step < steps]
    # At least 1 % wide, so that even the shortest life is visible.
    return Lane(
        round(begin, 3), round(max(end - begin, 1.0), 3), ticks, ended=life.ended is not None
    )


def shade(reward: float | None) -> int | None:
    """Return the index of a reward's shade, below `SHADES`; None without a reward."""
    if reward is None:
        return None
    # A reward of 1 belongs to the last shade.
    return min(int(max(reward, 0.0) * SHADES), SHADES - 1)


def parts(values: Sequence[float | None]) -> list[float]:
    """Return each value as a percentage of the largest; 0 if it is unknown."""
    most = max((value for value in values if value), default=0.0)
    return [round(100 * (value or 0.0) / most, 2) if most else 0.0 for value in values]


def _percent(value: float) -> float:
    return round(100 * min(max(value, 0.0), 1.0), 3)


def _height(value: float | None) -> float:
    return round(MARGIN + (1 - min(max(value or 0.0, 0.0), 1.0)) * (HEIGHT - 2 * MARGIN), 1)


def _centre(place: int, places: int) -> float:
    return round(100 * (place + 0.5) / places, 3)
