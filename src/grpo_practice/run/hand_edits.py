"""Edits of a library by a person: texts removed, reworded or released from quarantine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import clean
from grpo_practice.core.text import brief, count
from grpo_practice.core.types import Experience, Library, Operation, Quarantine
from grpo_practice.practice.answer_guard import AnswerGuard
from grpo_practice.practice.lint import why_not
from grpo_practice.practice.merge import apply, edits
from grpo_practice.practice.replies import EXPERIENCE_CHARS, FULL, LIBRARY_SIZE
from grpo_practice.reports.base import Report
from grpo_practice.run.library_refs import LibraryRef, library_of
from grpo_practice.store import Store, branches, datasets, libraries, steps
from grpo_practice.store.identity import INSTRUCTIONS
from grpo_practice.store.queries import history
from grpo_practice.store.queries.history import Quarantined
from grpo_practice.store.records import Branch


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
            (f"L{self.b.id} compared with L{self.a.id}",),
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


TOLD = (INSTRUCTIONS, "practice.agent_objective", "practice.learning_objective")
"""Keys of texts that the agent always sees; an answer that appears in one of them is not secret."""
SHOWN = 60
"""Maximum number of characters quoted from a text in a message."""


def edit_library(
    store: Store,
    ref: str | None,
    step: str = "last",
    *,
    remove: Sequence[str] = (),
    rewrite: Mapping[str, str] | None = None,
    approve: Sequence[str] = (),
) -> EditedLibrary:
    """Store the library that results from a person's edits; see `Workspace.edit_library`.

    Raises:
        ConfigError: The library, an experience or a text does not exist, or a text is not allowed.
    """
    found = library_of(store, ref, step)
    branch = store.read(branches.load, found.branch)
    operations = [
        *(Operation("DELETE", _id(found, name)) for name in dict.fromkeys(remove)),
        *(
            Operation("UPDATE", _id(found, name), _checked(store, branch, found, text))
            for name, text in (rewrite or {}).items()
        ),
    ]
    for one in _set_aside(store, branch, found, approve):
        _refuse_twice(found, one.text)
        # If the experience that the text would update is gone, add the text under a new label.
        there = one.target if one.target and found.library.get(one.target) else None
        operations.append(Operation("UPDATE" if there else "ADD", there, one.text))
    # Two edits of one experience would contradict each other.
    targets = [op.target for op in operations if op.target]
    for name in targets:
        if targets.count(name) > 1:
            raise ConfigError(f"{name} is named twice", hint="name it once")
    if len(apply(found.library, operations)) > LIBRARY_SIZE:
        raise ConfigError(FULL, hint="remove an experience first")
    made = store.derive_library(
        branch,
        found.library,
        edits(found.library, operations),
        cause="approve" if approve else "edit",
        source="human",
    )
    return EditedLibrary(found.run, found.library, made)


def _id(found: LibraryRef, name: str) -> str:
    """Return the label, such as `E12`; raise ConfigError if the library has no such experience."""
    number = re.fullmatch(r"[Ee]?([1-9]\d{0,8})", name)
    experience = f"E{number[1]}" if number else name
    if found.library.get(experience) is None:
        held = found.library.experiences
        names = f"; the first is {held[0].id}, the last {held[-1].id}" if held else ""
        raise ConfigError(
            f"L{found.library.id} ({found.run}) has no {name}: it has"
            f" {count(len(held), 'experience')}{names}",
            hint=f"grpo-practice experiences list --run L{found.library.id}",
        )
    return experience


def _checked(store: Store, branch: Branch, found: LibraryRef, text: str) -> str:
    """Return an experience's text on one line.

    Raises:
        ConfigError: The text is empty, too long, already in the library, or refused by lint.
    """
    line = " ".join(clean(text).split())
    if not any(char.isalnum() for char in line):
        raise ConfigError("the text is empty", hint="--text 'Short name: one sentence.'")
    if len(line) > EXPERIENCE_CHARS:
        raise ConfigError(
            f"the text has {len(line)} characters; an experience may have {EXPERIENCE_CHARS}",
            hint="shorten it to one sentence, because every rollout pays for it",
        )
    _refuse_twice(found, line)
    why = why_not(line) or _gives_away(store, branch, line)
    if why is not None:
        raise ConfigError(
            f"nothing is stored: {why.sentence}: {brief(line, SHOWN)}",
            hint="reword it, because a text in every prompt must teach, not give commands",
        )
    return line


def _refuse_twice(found: LibraryRef, text: str) -> None:
    """Raise ConfigError if an experience has exactly this text."""
    says = next((e.id for e in found.library.experiences if e.text == text), None)
    if says is not None:
        raise ConfigError(
            f"{says} of L{found.library.id} already says exactly this",
            hint=f"grpo-practice experiences show {says} --run L{found.library.id}",
        )


def _gives_away(store: Store, branch: Branch, text: str) -> Quarantine | None:
    """Return how the text reveals an answer in the run's dataset; None if it does not."""
    if branch.identity.get("practice.answer_guard") is False:
        return None
    told = "\n".join(str(branch.identity[key]) for key in TOLD if branch.identity.get(key))
    guard = AnswerGuard(store.each(datasets.answers, branch.dataset_id), told)
    answers = [
        sample.answer
        for row in store.read(steps.on_line, branch)
        for sample in store.read(datasets.samples_of, row.plan)
    ]
    return guard.of(answers).why_not(text, ())


def _set_aside(
    store: Store, branch: Branch, found: LibraryRef, names: Sequence[str]
) -> list[Quarantined]:
    """Return the quarantined texts with these names.

    Raises:
        ConfigError: No quarantined text has one of the names.
    """
    until = max((row.plan.step for row in store.read(steps.on_line, branch)), default=-1)
    outside = store.read(history.quarantined, branch.id, until=until) if names else []
    known = {one.id: one for one in outside}
    for name in names:
        if name.upper() not in known:
            raise ConfigError(
                f"{found.run} has no quarantined text {name}",
                hint=f"grpo-practice experiences list --quarantined --run {quote(found.run)}",
            )
    return [known[name] for name in dict.fromkeys(name.upper() for name in names)]


def diff_libraries(store: Store, a: str, b: str) -> LibraryDifference:
    """Return the differences between two libraries; see `Workspace.diff_libraries`.

    Two experiences are considered the same if they have the same origin; in libraries of different
    runs, if they have the same text.

    Raises:
        ConfigError: One of the libraries does not exist.
    """
    one, two = library_of(store, a), library_of(store, b)
    before, after = _by_experience(store, one.library), _by_experience(store, two.library)
    same = {e.text for e in one.library.experiences} & {e.text for e in two.library.experiences}
    kept = before.keys() & after.keys()
    return LibraryDifference(
        two.run,
        one.library,
        two.library,
        removed=[e for i, e in before.items() if i not in kept and e.text not in same],
        added=[e for i, e in after.items() if i not in kept and e.text not in same],
        reworded=[
            Reworded(after[i].id, before[i].text, after[i].text)
            for i in before
            if i in kept and before[i].text != after[i].text
        ],
        unchanged=len(same),
    )


def _by_experience(store: Store, library: Library) -> dict[int, Experience]:
    """Return experience id → experience, in the order of the library."""
    ids = store.read(libraries.items, library.id)
    return {id_: e for (_, id_, _), e in zip(ids, library.experiences, strict=True)}
