"""A person's hand on a library: texts removed, reworded, or let in that were set aside."""

import re
from collections.abc import Mapping, Sequence
from shlex import quote

from grpo_practice.app.library_refs import LibraryRef, library_of
from grpo_practice.canonical import clean
from grpo_practice.errors import ConfigError
from grpo_practice.practice.answer_guard import AnswerGuard
from grpo_practice.practice.lint import why_not
from grpo_practice.practice.merge import apply, edits
from grpo_practice.practice.replies import EXPERIENCE_CHARS, FULL, LIBRARY_SIZE
from grpo_practice.reports.edited_library import EditedLibrary, LibraryDifference, Reworded
from grpo_practice.store import Store, branches, datasets, libraries, steps
from grpo_practice.store.bound_keys import INSTRUCTIONS
from grpo_practice.store.queries import history
from grpo_practice.store.queries.history import Quarantined
from grpo_practice.store.records import Branch
from grpo_practice.text import brief, count
from grpo_practice.types import Experience, Library, Operation, Quarantine

TOLD = (INSTRUCTIONS, "practice.agent_objective", "practice.learning_objective")
"""Keys of what the agent is told anyway: a label that stands there is no secret."""
SHOWN = 60
"""Characters of a text in a message."""


def edit_library(
    store: Store,
    ref: str | None,
    step: str = "last",
    *,
    remove: Sequence[str] = (),
    rewrite: Mapping[str, str] | None = None,
    approve: Sequence[str] = (),
) -> EditedLibrary:
    """Store the library that a person makes of another one; see `Workspace.edit_library`.

    Raises:
        ConfigError: There is no such library, experience or text, or a text may not stand there.
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
        # A text whose experience is gone meanwhile is added under a new label.
        there = one.target if one.target and found.library.get(one.target) else None
        operations.append(Operation("UPDATE" if there else "ADD", there, one.text))
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
    """Return `E12`; raise ConfigError where the library holds none of this name."""
    number = re.fullmatch(r"[Ee]?([1-9]\d{0,8})", name)
    experience = f"E{number[1]}" if number else name
    if found.library.get(experience) is None:
        held = found.library.experiences
        names = f"; the first is {held[0].id}, the last {held[-1].id}" if held else ""
        raise ConfigError(
            f"L{found.library.id} ({found.run}) holds no {name}: it has"
            f" {count(len(held), 'experience')}{names}",
            hint=f"grpo-practice experiences list --run L{found.library.id}",
        )
    return experience


def _checked(store: Store, branch: Branch, found: LibraryRef, text: str) -> str:
    """Return the text of an experience on one line.

    Raises:
        ConfigError: It is empty or too long, stands there already, or lint refuses it.
    """
    line = " ".join(clean(text).split())
    if not any(char.isalnum() for char in line):
        raise ConfigError("the text is empty", hint="--text 'Short name: one sentence.'")
    if len(line) > EXPERIENCE_CHARS:
        raise ConfigError(
            f"the text has {len(line)} characters, and an experience at most {EXPERIENCE_CHARS}",
            hint="every rollout pays for it: say it in one sentence",
        )
    _refuse_twice(found, line)
    why = why_not(line) or _gives_away(store, branch, line)
    if why is not None:
        raise ConfigError(
            f"nothing is stored: {why.sentence}: {brief(line, SHOWN)}",
            hint="reword it; a text that stands in every prompt must teach, not act",
        )
    return line


def _refuse_twice(found: LibraryRef, text: str) -> None:
    """Raise ConfigError where an experience says exactly this."""
    says = next((e.id for e in found.library.experiences if e.text == text), None)
    if says is not None:
        raise ConfigError(
            f"{says} of L{found.library.id} says exactly this already",
            hint=f"grpo-practice experiences show {says} --run L{found.library.id}",
        )


def _gives_away(store: Store, branch: Branch, text: str) -> Quarantine | None:
    """Return why the text gives an answer of the run's dataset away; None where it does not."""
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
    """Return the texts of these names that were quarantined.

    Raises:
        ConfigError: There is none of a name.
    """
    until = max((row.plan.step for row in store.read(steps.on_line, branch)), default=-1)
    outside = store.read(history.quarantined, branch.id, until=until) if names else []
    known = {one.id: one for one in outside}
    for name in names:
        if name.upper() not in known:
            raise ConfigError(
                f"{found.run} has quarantined no {name}",
                hint=f"grpo-practice experiences list --quarantined --run {quote(found.run)}",
            )
    return [known[name] for name in dict.fromkeys(name.upper() for name in names)]


def diff_libraries(store: Store, a: str, b: str) -> LibraryDifference:
    """Return what differs between two libraries; see `Workspace.diff_libraries`.

    An experience is the same one where it has been since it was learnt; of libraries of two runs,
    where it says the same.

    Raises:
        ConfigError: There is no such library.
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
    """Return experience id → experience, in order."""
    ids = store.read(libraries.items, library.id)
    return {id_: e for (_, id_, _), e in zip(ids, library.experiences, strict=True)}
