"""A library without some of its experiences, as `experiences prune` makes it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any, Literal

from typing_extensions import override

from grpo_practice.prompts.system import library_tokens
from grpo_practice.reports.base import Report
from grpo_practice.reports.effects import ExperienceEffect, Measurement
from grpo_practice.stats.effects import HARMFUL
from grpo_practice.text import count
from grpo_practice.types import Experience, Library


@dataclass(frozen=True, slots=True)
class Pruned:
    """An experience that was taken out."""

    of: ExperienceEffect
    reason: Literal["harm", "room"]
    """`harm`: it is likely to do some; `room`: others are worth more in so many tokens."""

    def document(self) -> dict[str, Any]:
        """Return it as part of a document."""
        return self.of.document() | {"reason": self.reason}


@dataclass(frozen=True, slots=True, repr=False)
class PruneReport(Report):
    """A library without some of its experiences; no gain is claimed, since none is measured."""

    run: str
    """Practice run of the library."""
    found: Measurement
    gone: Sequence[Pruned]
    library: Library | None
    """The new library; None where nothing is taken out, or nothing would be left."""

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of the library before and after, about."""
        return library_tokens(self.found.library), library_tokens(self.library or Library())

    @property
    def sentence(self) -> str:
        """Result in one sentence."""
        was = f"L{self.found.library.id}"
        if not self.gone:
            return f"{was} stays as it is: no experience is likely to do harm (P > {HARMFUL:g})"
        if self.library is None:
            return (
                f"all {count(len(self.gone), 'experience')} of {was} are likely to do harm"
                f" (P > {HARMFUL:g}): no library is made, since it would be empty"
            )
        before, after = self.tokens
        return (
            f"L{self.library.id} is {was} without"
            f" {', '.join(one.of.experience.id for one in self.gone)}:"
            f" {count(len(self.library), 'experience')}, {after:,} tokens in place of {before:,}"
        )

    @property
    @override
    def next_command(self) -> str:
        """Command to type now: only a comparison on other questions can tell a gain."""
        arms = "none,full" + (f",L{self.library.id}" if self.library else "")
        return f"grpo-practice eval --run {quote(self.run)} --arms {arms}"

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.prune/1`."""
        before, after = self.tokens
        return {
            "schema": "grpo-practice.prune/1",
            "run": self.run,
            "simulated": self.found.simulated,
            "measured_by": self.found.run,
            "before": f"L{self.found.library.id}",
            "library": f"L{self.library.id}" if self.library else None,
            "experiences": [asdict(e) | {"id": e.id} for e in self._left],
            "removed": [one.document() for one in self.gone],
            "tokens": {"before": before, "after": after if self.library else before},
            "sentence": self.sentence,
            "next": self.next_command,
            "exit": 0,
        }

    @property
    def _left(self) -> Sequence[Experience]:
        return (self.library or self.found.library).experiences

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return what was taken out."""
        return [
            (self.sentence,),
            *((one.of.experience.id, one.reason, one.of.experience.text) for one in self.gone),
        ]
