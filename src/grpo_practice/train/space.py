"""Search space: the settings that a trial may use."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from grpo_practice.core.errors import ConfigError

# The factors of arXiv:1711.09846.
FACTORS = (0.8, 1.2)
"""Factors that a population may multiply a number by from one round to the next."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A list of values; a trial uses one of them."""

    values: Sequence[Any]

    @property
    def ends(self) -> Sequence[Any]:
        """Values to check before training: all of them."""
        return self.values

    def suggest(self, trial: Any, key: str) -> Any:
        """Return the value that Optuna suggests for a trial."""
        # Suggest the index: a value may be a list, which Optuna cannot store.
        return self.values[trial.suggest_categorical(key, list(range(len(self.values))))]

    def sample(self, rng: Random) -> Any:
        """Return a random value."""
        return rng.choice(self.values)

    def near(self, value: Any, rng: Random) -> Any:
        """Return the previous or next value in the list, at random."""
        place = self.values.index(value) + rng.choice((-1, 1))
        return self.values[min(max(place, 0), len(self.values) - 1)]


@dataclass(frozen=True, slots=True)
class SearchRange:
    """A range of numbers, including both ends."""

    low: float
    high: float
    log: bool = False
    """Whether the scale is logarithmic."""

    @property
    def ends(self) -> Sequence[Any]:
        """Values to check before training: both ends."""
        return self.low, self.high

    @property
    def _whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def suggest(self, trial: Any, key: str) -> Any:
        """Return the value that Optuna suggests for a trial; an integer for integer ends."""
        if self._whole:
            return trial.suggest_int(key, self.low, self.high, log=self.log)
        return trial.suggest_float(key, self.low, self.high, log=self.log)

    def sample(self, rng: Random) -> Any:
        """Return a random value; an integer for integer ends."""
        if self.log:
            return self._within(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return self._within(rng.uniform(self.low, self.high))

    def near(self, value: Any, rng: Random) -> Any:
        """Return a somewhat larger or smaller number; integers change by at least 1."""
        factor = rng.choice(FACTORS)
        near = self._within(value * factor)
        # Rounding may cancel the factor, which would leave the member's setting unchanged.
        if self._whole and near == value:
            return self._within(value + math.copysign(1, factor - 1))
        return near

    def _within(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        return round(value) if self._whole else value


Space = Mapping[str, Choice | SearchRange]
"""Key of `train:` → values that a trial may use."""


def space_of(written: Mapping[str, Any]) -> Space:
    """Parse a search space from the config.

    Raises:
        ConfigError: The space is empty, or an entry is neither a list nor a range.
    """
    if not written:
        raise ConfigError(
            "train.tune.space is empty: there is nothing to search",
            hint="for example, add `tune: {space: {learning_rate: {low: 1.0e-6, high: 1.0e-4,"
            " log: true}, group_size: [4, 8]}}` to `train:`",
        )
    return {key: _part(key, value) for key, value in written.items()}


def _part(key: str, value: Any) -> Choice | SearchRange:
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
            return SearchRange(low, high, bool(more.get("log")))
        case _:
            raise ConfigError(
                f"train.tune.space.{key} is neither a list of values nor a range",
                hint="write [a, b], or {low: a, high: b}; with log: true both must be above 0",
            )
