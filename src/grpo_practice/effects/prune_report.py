"""A library from which `experiences prune` removed some experiences."""

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import ClassVar, Literal

from typing_extensions import override

from grpo_practice.core.prompts.system import library_tokens
from grpo_practice.core.stats.effects import HARMFUL
from grpo_practice.core.text import count
from grpo_practice.core.types import Experience, Library
from grpo_practice.reports.base import Report
from grpo_practice.reports.effects import ExperienceEffect, Measurement


@dataclass(frozen=True, slots=True)
class Pruned:
    """An experience that was removed."""

    in_document: ClassVar = (*(f"of.{key}" for key in ExperienceEffect.in_document), "reason")

    of: ExperienceEffect
    reason: Literal["harm", "room"]
    """`harm`: the experience is probably harmful; `room`: other experiences are worth more per
    token.
    """


@dataclass(frozen=True, slots=True, repr=False)
class PruneReport(Report):
    """Report on a pruned library, without a claim of a gain, because none was measured."""

    schema: ClassVar = "grpo-practice.prune/1"
    in_document: ClassVar = (
        *("run", "found.simulated", "measured_by", "before", "library", "experiences"),
        *("removed", "tokens", "sentence"),
    )

    run: str
    """Practice run that made the library."""
    found: Measurement
    removed: Sequence[Pruned]
    library: Library | None
    """The new library; None if nothing was removed, or if it would be empty."""

    @property
    def tokens(self) -> tuple[int, int]:
        """Approximate number of tokens of the library, before and after."""
        return library_tokens(self.before), library_tokens(self.library or self.before)

    @property
    def sentence(self) -> str:
        """Result in one sentence."""
        was = f"L{self.found.library.id}"
        if not self.removed:
            return f"{was} stays as it is: no experience is likely to do harm (P > {HARMFUL:g})"
        if self.library is None:
            return (
                f"all {count(len(self.removed), 'experience')} of {was} are likely to do harm"
                f" (P > {HARMFUL:g}): no library is made, since it would be empty"
            )
        before, after = self.tokens
        return (
            f"L{self.library.id} is {was} without"
            f" {', '.join(one.of.experience.id for one in self.removed)}:"
            f" {count(len(self.library), 'experience')}, {after:,} tokens instead of {before:,}"
        )

    @property
    @override
    def next_command(self) -> str:
        """Command that compares the libraries; only new questions can show a gain."""
        arms = "none,full" + (f",L{self.library.id}" if self.library else "")
        return f"grpo-practice eval --run {quote(self.run)} --arms {arms}"

    @property
    def measured_by(self) -> str:
        """Run that measured the effects."""
        return self.found.run

    @property
    def before(self) -> Library:
        """Library that was pruned."""
        return self.found.library

    @property
    def experiences(self) -> Sequence[Experience]:
        """Remaining experiences."""
        return (self.library or self.found.library).experiences

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each removed experience."""
        return [
            (self.sentence,),
            *((one.of.experience.id, one.reason, one.of.experience.text) for one in self.removed),
        ]
