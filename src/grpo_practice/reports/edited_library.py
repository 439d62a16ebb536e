"""Reports on a library edited by a person and on the difference between two libraries."""

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.text import count
from grpo_practice.core.types import Experience, Library
from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True)
class Reworded:
    """An experience whose text changed."""

    id: str
    was: str
    now: str


@dataclass(frozen=True, slots=True, repr=False)
class LibraryDifference(Report):
    """The difference between two libraries."""

    schema: ClassVar = "grpo-practice.libraries/1"

    run: str
    """Run that made `b`."""
    a: Library
    b: Library
    removed: Sequence[Experience]
    """Experiences that only `a` holds."""
    added: Sequence[Experience]
    """Experiences that only `b` holds."""
    reworded: Sequence[Reworded]
    unchanged: int
    """Number of texts that both libraries hold."""

    @property
    @override
    def next_command(self) -> str:
        """Command that evaluates both libraries."""
        return f"grpo-practice eval --arms L{self.a.id},L{self.b.id} --run {quote(self.run)}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each experience that differs."""
        return [
            (f"L{self.b.id} less L{self.a.id}",),
            *(("removed", e.id, e.text) for e in self.removed),
            *(("reworded", one.id, one.now) for one in self.reworded),
            *(("added", e.id, e.text) for e in self.added),
            (count(self.unchanged, "text") + " unchanged",),
        ]


@dataclass(frozen=True, slots=True, repr=False)
class EditedLibrary(Report):
    """A library edited by a person."""

    schema: ClassVar = "grpo-practice.edited-library/1"
    in_document: ClassVar = ("run", "parent", "library", "library.experiences")

    run: str
    parent: Library
    """Library that was edited."""
    library: Library

    @property
    @override
    def next_command(self) -> str:
        """Command that measures whether the edited library is better."""
        return f"grpo-practice eval --arms none,full,L{self.library.id} --run {quote(self.run)}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each experience."""
        return [
            (f"L{self.library.id}, made of L{self.parent.id} ({self.run})",),
            *((e.id, e.text) for e in self.library.experiences),
        ]
