"""Writes that make libraries beside the end of a step."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from grpo_practice.store import close_step, derived_libraries, libraries
from grpo_practice.store.derived_libraries import DerivedCause, Source
from grpo_practice.store.records import Approvals, Branch
from grpo_practice.types import Edit, Library

T = TypeVar("T")


class LibraryWrites(ABC):
    """Libraries that a person, a measurement or a comparison makes; a base of `Store`."""

    @abstractmethod
    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T: ...

    def approve(self, branch: Branch, step: int, approvals: Approvals) -> int:
        """Let held operations into the library of the last closed step; return its new id."""
        return self._write(lambda db: close_step.approve(db, branch, step, approvals))

    def decide(self, branch: Branch, step: int, held: Iterable[int], *, approve: bool) -> None:
        """Store that held operations are rejected, or go in when the step under way closes."""
        self._write(lambda db: close_step.decide(db, branch, step, held, approve=approve))

    def put_library(self, branch: Branch, library: Library) -> Library:
        """Return a library of the branch's run that no step made, as it is stored."""
        library_id = self._write(lambda db: libraries.put(db, branch.run, branch.id, library))
        return replace(library, id=library_id)

    def derive_library(
        self,
        branch: Branch,
        parent: Library,
        edits: Sequence[Edit],
        *,
        cause: DerivedCause,
        source: Source,
    ) -> Library:
        """Return the library that edits make of a stored one; see `derived_libraries.derive`."""
        return self._write(
            lambda db: derived_libraries.derive(
                db, branch, parent, edits, cause=cause, source=source
            )
        )
