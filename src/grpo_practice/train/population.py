"""Population-based training: good members pass on their weights, and settings near their own.

Source: arXiv:1711.09846, truncation selection. Everything follows from the seed and the scores, so
nothing needs to be stored except the runs themselves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from grpo_practice.train.space import Space

TAKEN = 0.25
"""Share of the members that copy the weights of an equal number of the best members."""
RESAMPLED = 0.25
"""Probability of drawing a new value for a setting instead of changing the inherited value
slightly.
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps during which weights were trained with the same settings."""

    step: int
    """First step of the phase."""
    member: int
    values: Mapping[str, Any]
    """Key of `train:` → value."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a population, with the history of its current weights."""

    number: int
    phases: Sequence[Phase]

    @property
    def values(self) -> Mapping[str, Any]:
        """Current settings of the member."""
        return self.phases[-1].values

    @property
    def source(self) -> tuple[int, int] | None:
        """Member and step that its weights were last copied from; None if it never copied any."""
        if len(self.phases) == 1:
            return None
        before, now = self.phases[-2:]
        return before.member, now.step - 1


def first_members(space: Space, count: int, seed: int) -> list[Member]:
    """Return members with settings drawn from the space."""
    return [
        Member(number, [Phase(0, number, _drawn(space, Random(f"{seed}|{number}")))])
        for number in range(count)
    ]


def _drawn(space: Space, rng: Random) -> dict[str, Any]:
    return {key: part.sample(rng) for key, part in space.items()}


def next_members(
    members: Sequence[Member], scores: Mapping[int, float], step: int, space: Space, seed: int
) -> list[Member]:
    """Return the members that continue after a step; members without a score are dropped.

    Each member of the worst quarter copies the weights of one of the best members, with settings
    near that member's settings, unless that member's score is no better.
    """
    ranked = sorted(
        (member for member in members if member.number in scores),
        key=lambda member: (-scores[member.number], member.number),
    )
    # At most half, so that no member is among both the best and the worst.
    count = min(math.ceil(len(ranked) * TAKEN), len(ranked) // 2)
    worst = {member.number for member in ranked[len(ranked) - count :]}

    def after(member: Member) -> Member:
        rng = Random(f"{seed}|{member.number}|{step}")
        if member.number not in worst:
            return member
        best = rng.choice(ranked[:count])
        if scores[best.number] <= scores[member.number]:
            return member
        phase = Phase(step, member.number, _explored(best.values, space, rng))
        return replace(member, phases=[*best.phases, phase])

    return sorted(map(after, ranked), key=lambda member: member.number)


def _explored(values: Mapping[str, Any], space: Space, rng: Random) -> dict[str, Any]:
    return {
        key: part.sample(rng) if rng.random() < RESAMPLED else part.near(values[key], rng)
        for key, part in space.items()
    }
