"""Space of a search: the settings that a trial may take."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from grpo_practice.errors import ConfigError

FACTORS = (0.8, 1.2)
"""Factors by which a number changes from one round of a population to the next."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A list of values, of which a trial has one."""

    values: Sequence[Any]

    @property
    def ends(self) -> Sequence[Any]:
        """Values to be looked at before anything is trained: all of them."""
        return self.values

    def suggest(self, trial: Any, key: str) -> Any:
        """Return the value of a trial."""
        # By its place: a value may be a list, which Optuna does not store.
        return self.values[trial.suggest_categorical(key, list(range(len(self.values))))]

    def sample(self, rng: Random) -> Any:
        """Return any value."""
        return rng.choice(self.values)

    def near(self, value: Any, rng: Random) -> Any:
        """Return the value before or after one, in the order of the list."""
        place = self.values.index(value) + rng.choice((-1, 1))
        return self.values[min(max(place, 0), len(self.values) - 1)]


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers between two ends."""

    low: float
    high: float
    log: bool = False
    """Whether factors count, not differences."""

    @property
    def ends(self) -> Sequence[Any]:
        """Values to be looked at before anything is trained."""
        return self.low, self.high

    @property
    def _whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def suggest(self, trial: Any, key: str) -> Any:
        """Return the value of a trial; a whole number where both ends are."""
        if self._whole:
            return trial.suggest_int(key, self.low, self.high, log=self.log)
        return trial.suggest_float(key, self.low, self.high, log=self.log)

    def sample(self, rng: Random) -> Any:
        """Return any value; a whole number where both ends are."""
        if self.log:
            return self._within(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return self._within(rng.uniform(self.low, self.high))

    def near(self, value: Any, rng: Random) -> Any:
        """Return a number somewhat larger or smaller than one; a whole one by 1 at least."""
        factor = rng.choice(FACTORS)
        near = self._within(value * factor)
        if self._whole and near == value:
            return self._within(value + math.copysign(1, factor - 1))
        return near

    def _within(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        return round(value) if self._whole else value


Space = Mapping[str, Choice | Range]
"""Key of `train:` → what a trial may take for it."""


def space_of(written: Mapping[str, Any]) -> Space:
    """Return a search space as it is written.

    Raises:
        ConfigError: It is empty, or a value is neither a list nor a range.
    """
    if not written:
        raise ConfigError(
            "train.tune.space is empty: there is nothing to search",
            hint="add for instance `tune: {space: {learning_rate: {low: 1.0e-6, high: 1.0e-4,"
            " log: true}, group_size: [4, 8]}}` to `train:`",
        )
    return {key: _part(key, value) for key, value in written.items()}


def _part(key: str, value: Any) -> Choice | Range:
    match value:
        case [_, *_]:
            return Choice(value)
        case {"low": int() | float() as low, "high": int() | float() as high, **more} if (
            not more.keys() - {"log"}
            and isinstance(more.get("log", False), bool)
            and low < high
            and (low > 0 or not more.get("log"))
            and math.isfinite(low)
            and math.isfinite(high)
        ):
            return Range(low, high, bool(more.get("log")))
        case _:
            raise ConfigError(
                f"train.tune.space.{key} is neither a list of values nor a range",
                hint="write [a, b], or {low: a, high: b}; with log: true both ends are above 0",
            )
