"""`experiences prune`: make a library without harmful or least valuable experiences."""

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import ClassVar, Literal

from typing_extensions import override

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.prompts.system import (
    experience_lines,
    library_sha,
    library_tokens,
    render_library,
)
from grpo_practice.core.stats.effects import HARMFUL, best_within
from grpo_practice.core.stats.paired import FEWEST
from grpo_practice.core.text import CHARS_PER_TOKEN, count
from grpo_practice.core.types import Edit, Experience, Library, Operation
from grpo_practice.reports.base import Report
from grpo_practice.reports.effects import ExperienceEffect, Measurement, measurement
from grpo_practice.run.library_refs import LibraryRef, library_of
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import evaluations


@dataclass(frozen=True, slots=True)
class Pruned:
    """An experience that was removed."""

    in_document: ClassVar = (*(f"of.{key}" for key in ExperienceEffect.in_document), "reason")

    of: ExperienceEffect
    reason: Literal["harm", "room"]
    """`harm`: the experience is probably harmful; `room`: others are worth more per token."""


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


def prune(
    store: Store, ref: str | None, step: str = "last", max_tokens: int | None = None
) -> PruneReport:
    """Store a library without the experiences that probably do harm; see `Workspace.prune`.

    Raises:
        ConfigError: The library does not exist, the effects of its experiences were not measured,
            or no experience fits into `max_tokens`.
    """
    found = library_of(store, ref, step)
    measured = _measured(store, found)
    gone = [Pruned(one, "harm") for one in measured.experiences if one.harmful]
    stay = [one for one in measured.experiences if not one.harmful]
    if max_tokens is not None:
        _check_room(found.library, max_tokens)
        chosen = _within(stay, max_tokens)
        gone += [Pruned(one, "room") for one in stay if one not in chosen]
        stay = chosen
    made = None
    if gone and stay:
        edits = [_removal(one, measured.run) for one in gone]
        branch = store.read(branches.load, found.branch)
        made = store.derive_library(branch, found.library, edits, cause="prune", source="prune")
    return PruneReport(found.run, measured, gone, made)


def _measured(store: Store, found: LibraryRef) -> Measurement:
    """Return the effects of the library's experiences.

    Raises:
        ConfigError: The effects were not measured, or on too few questions.
    """
    name = store.read(evaluations.measurement_of, found.run, library_sha(found.library))
    library = f"L{found.library.id}"
    if name is None:
        raise ConfigError(
            f"the effects of the experiences of {library} ({found.run}) are not measured",
            hint="measure them, with --dataset and questions that were not used yet:"
            f" grpo-practice experiences effect --run {library}",
        )
    measured = measurement(store, name)
    if not measured.enough or all(one.effect is None for one in measured.experiences):
        raise ConfigError(
            f"{name} has too few questions to say which experience does harm:"
            f" {count(measured.questions, 'question')}, and {FEWEST} are needed",
            hint="use more questions or a larger -k:"
            f" grpo-practice experiences effect --run {library}"
            f" --dataset {quote(measured.dataset)}",
        )
    return measured


def _check_room(library: Library, max_tokens: int) -> None:
    least = min((library_tokens(Library((e,))) for e in library.experiences), default=0)
    if max_tokens < least:
        raise ConfigError(
            f"--max-tokens {max_tokens}: with its heading, the shortest experience takes {least}",
            hint=f"all of them take {library_tokens(library)}",
        )


def _within(stay: list[ExperienceEffect], max_tokens: int) -> list[ExperienceEffect]:
    """Return the subset with the highest total value that fits, or all experiences if all fit."""
    library = Library(tuple(one.experience for one in stay))
    if not stay or library_tokens(library) <= max_tokens:
        return stay
    # An entry's line, with its line break.
    sizes = [len(experience_lines(Library((one.experience,))).encode()) + 1 for one in stay]
    # Count the heading, minus the line break that the last entry does not have.
    rest = len(render_library(library).encode()) - sum(sizes)
    room = CHARS_PER_TOKEN * max_tokens - rest
    places = best_within([one.expected or 0.0 for one in stay], sizes, room)
    return [stay[place] for place in places]


def _removal(one: Pruned, run: str) -> Edit:
    experience, p_harm = one.of.experience, one.of.p_harm
    why = f"no room for it: measured by {run}"
    if one.reason == "harm":
        why = f"likely to do harm (P = {p_harm:.2f}): measured by {quote(run)}"
    return Edit(Operation("DELETE", experience.id, why=why), experience.label, pruned=True)
