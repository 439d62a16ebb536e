"""A library that a person made of another one, and the difference of two."""

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report
from grpo_practice.text import count
from grpo_practice.types import Experience, Library


@dataclass(frozen=True, slots=True)
class Reworded:
    """An experience whose text is another one."""

    id: str
    was: str
    now: str


@dataclass(frozen=True, slots=True, repr=False)
class LibraryDifference(Report):
    """The difference between two libraries."""

    schema: ClassVar = "grpo-practice.libraries/1"

    run: str
    """The run of `b`."""
    a: Library
    b: Library
    removed: Sequence[Experience]
    """Experiences of `a` that are not in `b`."""
    added: Sequence[Experience]
    """Experiences of `b` that are not in `a`."""
    reworded: Sequence[Reworded]
    unchanged: int
    """Texts that are in both."""

    @property
    @override
    def next_command(self) -> str:
        """Command to type now: the one that plays both."""
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
    """A library that a person made."""

    schema: ClassVar = "grpo-practice.edited-library/1"
    in_document: ClassVar = ("run", "parent", "library", "library.experiences")

    run: str
    parent: Library
    """The library that it was made of."""
    library: Library

    @property
    @override
    def next_command(self) -> str:
        """Command to type now: the one that says whether it is better."""
        return f"grpo-practice eval --arms none,full,L{self.library.id} --run {quote(self.run)}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each experience."""
        return [
            (f"L{self.library.id}, made of L{self.parent.id} ({self.run})",),
            *((e.id, e.text) for e in self.library.experiences),
        ]
