"""Approval by a person: turns held operations into edits of the library current at that time."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_practice.core.types import Library, Operation
from grpo_practice.practice.merge import edits
from grpo_practice.practice.replies import FULL, LIBRARY_SIZE
from grpo_practice.store.libraries import edited
from grpo_practice.store.queries.held import Held
from grpo_practice.store.records import Approval, Approvals

HELD = "held until a person approves it"


@dataclass(frozen=True, slots=True)
class AdmittedTexts:
    """The approved texts that a library accepts, and the reason for each text it refuses."""

    approvals: Approvals
    refused: Mapping[str, str]
    """Label of a held operation, such as `H12` → reason."""


def admitted(library: Library, approved: Iterable[Held]) -> AdmittedTexts:
    """Apply approved operations to a library that may have changed since they were held.

    If the experience that an operation updates has since been removed, its text is added under a
    new label.
    """
    taken, refused = list[Held](), dict[str, str]()
    operations, after = list[Operation](), library
    for one in approved:
        op = one.operation
        if op.target is None or after.get(op.target) is None:
            op = replace(op, op="ADD", target=None)
        says = next((e for e in after.experiences if e.text == one.text), None)
        if says is not None:
            refused[one.id] = f"{says.id} already says exactly this"
        elif op.op == "ADD" and len(after) >= LIBRARY_SIZE:
            refused[one.id] = FULL
        else:
            taken.append(one)
            operations.append(op)
            after = edited(library, edits(library, operations))
    made = edits(library, operations)
    pairs = zip(taken, made, strict=True)
    return AdmittedTexts(
        Approvals([Approval(one.row, edit) for one, edit in pairs], after), refused
    )


def held_back(merged: Sequence[Operation], outside: Collection[str]) -> tuple[Operation, ...]:
    """Return the merged operations, holding every new text until a person approves it.

    Texts in `outside` are already held or were rejected. They are refused, so that nobody has to
    decide on the same text twice.
    """
    held = list(merged)
    for i, op in enumerate(merged):
        if op.refused is None and op.op in ("ADD", "UPDATE"):
            why = f"{HELD}; {op.why}" if op.why else HELD
            held[i] = replace(op, refused=why, rule="held")
            if op.text in outside:
                why = "it is already held, or was rejected"
                held[i] = replace(op, refused=why, rule="duplicate")
    return tuple(held)
