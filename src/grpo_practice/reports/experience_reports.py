"""Reports on a library's experiences and on the history of one experience, with the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from grpo_practice.core.text import count
from grpo_practice.core.types import Library
from grpo_practice.reports.base import Report, Shown, export_command
from grpo_practice.store.queries.held import Held as Held
from grpo_practice.store.queries.history import ExperienceHistory
from grpo_practice.store.queries.history import LibraryChange as LibraryChange
from grpo_practice.store.queries.history import Quarantined as Quarantined

if TYPE_CHECKING:
    from grpo_practice.reports.before_after import When


@dataclass(frozen=True, slots=True)
class EvidenceSummary:
    """Evidence for and against one experience, in numbers."""

    supporting: int
    """Number of questions that produced or confirmed the experience."""
    opposing: int
    """Number of questions that contradicted the experience."""
    reward_change: float | None
    """Mean change in reward with the experience; None if no question was played both ways."""
    reward_questions: int
    """Number of questions behind `reward_change`."""
    support: float
    """Expected change in reward, in standard deviations; negative if the experience does harm."""

    sentence: str
    """The evidence in words."""


@dataclass(frozen=True, slots=True, repr=False)
class LibraryReport(Report):
    """The experiences of a library."""

    schema: ClassVar = "grpo-practice.experiences/1"
    in_document: ClassVar = (
        *("run", "step", "library", "library.experiences", "evidence", "held", "quarantined"),
    )

    run: str
    step: int | None
    """Closed step that made the library; None for the library that the run started with."""
    library: Library
    evidence: Mapping[str, EvidenceSummary]
    """Id of the experience → its evidence."""
    held: Sequence[Held] = ()
    """New texts, up to that step, that are waiting for approval."""
    quarantined: Sequence[Quarantined] | None = None
    """Texts quarantined up to that step; None if they were not requested."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each experience."""
        found = self.library.experiences
        return [
            (f"{count(len(found), 'experience')} of {self.run}",),
            *((e.id, e.text, self.evidence[e.id].sentence) for e in found),
            *((one.id, one.text, "held for approval") for one in self.held),
        ]


@dataclass(frozen=True, slots=True, repr=False)
class DecisionReport(Report):
    """A person's decision to approve or reject held experiences."""

    schema: ClassVar = "grpo-practice.decision/1"

    run: str
    approved: bool
    """False if the texts were rejected."""
    decided: Sequence[Held]
    experiences: Mapping[str, str]
    """Id of a held text → id of its experience (`H12` → `E4`); only of texts that entered."""
    waits: bool
    """True if the approved texts enter the library only when the current step closes."""
    library: Library
    """Current library of the run."""
    left: int
    """Number of texts still held."""
    measure: Mapping["When", str]
    """Missing score of the current library → the command that measures it."""

    @property
    @override
    def next_command(self) -> str:
        """Command that lists held texts, shows the run, or measures or exports the agent."""
        if self.left:
            return f"grpo-practice experiences list --run {quote(self.run)}"
        if self.waits or not self.library.experiences:
            return f"grpo-practice runs show {quote(self.run)}"
        return next(iter(self.measure.values()), None) or export_command(self.run)

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each decided text."""
        word = "approved" if self.approved else "rejected"
        return [
            (f"{count(len(self.decided), 'text')} of {self.run} {word}",),
            *((self.experiences.get(one.id, one.id), one.text) for one in self.decided),
        ]


def invented(text: str) -> str:
    """Return what is wrong with a text of the simulated teacher; empty for any other text."""
    if "(#" not in text:  # as in each text of the simulation, whose import takes time
        return ""
    from grpo_practice.sim.experience_texts import flaw

    return flaw(text)


def _made(change: LibraryChange) -> str:
    return "outside the run" if change.step is None else f"step {change.step}"


class Changes(Shown, tuple[LibraryChange, ...]):
    """Changes of an experience, oldest first."""

    __slots__ = ()

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each change: its step, operation and text."""
        return [
            (count(len(self), "change"),),
            *((_made(c), c.op, c.text or "(removed)") for c in self),
        ]


@dataclass(frozen=True, slots=True, repr=False)
class ExperienceReport(Report):
    """An experience and its history."""

    schema: ClassVar = "grpo-practice.experience/1"
    in_document: ClassVar = (
        *("history.run", "history.id", "history.imported", "history.changes", "history.votes"),
        *("history.text", "evidence"),
    )

    history: ExperienceHistory
    evidence: EvidenceSummary | None
    """Evidence for and against the experience; None if the library no longer holds it."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the experience's text, evidence and changes."""
        found = self.history
        return [
            (f"{found.id} of {found.run}",),
            ("text", found.text or "(removed)"),
            ("evidence", self.evidence.sentence if self.evidence else ""),
            *((_made(c), f"{c.op} {c.text or ''}") for c in found.changes),
        ]
