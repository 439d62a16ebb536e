"""The experiences of a library, and the history of one of them, each with its evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report, Shown
from grpo_practice.store.queries.held import Held as Held
from grpo_practice.store.queries.history import ExperienceHistory
from grpo_practice.store.queries.history import LibraryChange as LibraryChange
from grpo_practice.store.queries.history import Quarantined as Quarantined
from grpo_practice.text import count
from grpo_practice.types import Library


@dataclass(frozen=True, slots=True)
class EvidenceSummary:
    """Evidence for and against one experience, in numbers."""

    supporting: int
    """Questions that led to it or confirmed it."""
    opposing: int
    """Questions that spoke against it."""
    reward_change: float | None
    """Mean change of reward with the experience; None where no question was played both ways."""
    reward_questions: int
    """Questions behind that change."""
    support: float
    """Weight of all that speaks for it, less all that speaks against it, in votes."""

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
    """Closed step that made the library; None for the one the run started with."""
    library: Library
    evidence: Mapping[str, EvidenceSummary]
    """Evidence on each experience by its id."""
    held: Sequence[Held] = ()
    """New texts up to that step that wait for approval."""
    quarantined: Sequence[Quarantined] | None = None
    """Texts kept out up to that step; None where they were not asked for."""

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
    """Held experiences that a person approved or rejected."""

    schema: ClassVar = "grpo-practice.decision/1"

    run: str
    approved: bool
    """False for rejected ones."""
    decided: Sequence[Held]
    experiences: Mapping[str, str]
    """`H12` → `E4`, the experience that it is now; none for what is rejected or waits."""
    waits: bool
    """True when they enter the library once the step under way has closed."""
    library: Library
    """The library that the run has now."""
    left: int
    """Number of texts that are held still."""

    @property
    @override
    def next_command(self) -> str:
        """Command to type now."""
        if self.left:
            return f"grpo-practice experiences list --run {quote(self.run)}"
        if self.waits or not self.library.experiences:
            return f"grpo-practice runs show {quote(self.run)}"
        return f"grpo-practice export-agent --run {quote(self.run)}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each text that was decided on."""
        word = "approved" if self.approved else "rejected"
        return [
            (f"{count(len(self.decided), 'text')} of {self.run} {word}",),
            *((self.experiences.get(one.id, one.id), one.text) for one in self.decided),
        ]


def _made(change: LibraryChange) -> str:
    return "beside the run" if change.step is None else f"step {change.step}"


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
    """An experience, from its first text on."""

    schema: ClassVar = "grpo-practice.experience/1"
    in_document: ClassVar = (
        *("history.run", "history.id", "history.imported", "history.changes", "history.votes"),
        *("history.text", "evidence"),
    )

    history: ExperienceHistory
    evidence: EvidenceSummary | None
    """None for an experience that the library does not hold any more."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return its text, evidence, and changes."""
        found = self.history
        return [
            (f"{found.id} of {found.run}",),
            ("text", found.text or "(removed)"),
            ("evidence", self.evidence.sentence if self.evidence else ""),
            *((_made(c), f"{c.op} {c.text or ''}") for c in found.changes),
        ]
