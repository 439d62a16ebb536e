"""Approval by a person: held operations become edits of the library as it is by then."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_practice.practice.merge import edits
from grpo_practice.practice.replies import FULL, LIBRARY_SIZE
from grpo_practice.store.libraries import edited
from grpo_practice.store.queries.held import Held
from grpo_practice.store.records import Approval, Approvals
from grpo_practice.types import Library, Operation

HELD = "held until a person approves it"


@dataclass(frozen=True, slots=True)
class Admission:
    """Approved texts that a library takes, and why it does not take the others."""

    approvals: Approvals
    refused: Mapping[str, str]
    """`H12` → reason."""


def admitted(library: Library, approved: Iterable[Held]) -> Admission:
    """Return what approved operations make of a library that may have changed since.

    A text whose experience is gone meanwhile is added under a new label.
    """
    taken, refused = list[Held](), dict[str, str]()
    operations, after = list[Operation](), library
    for one in approved:
        op = one.operation
        if op.target is None or after.get(op.target) is None:
            op = replace(op, op="ADD", target=None)
        says = next((e for e in after.experiences if e.text == one.text), None)
        if says is not None:
            refused[one.id] = f"{says.id} says exactly this"
        elif op.op == "ADD" and len(after) >= LIBRARY_SIZE:
            refused[one.id] = FULL
        else:
            taken.append(one)
            operations.append(op)
            after = edited(library, edits(library, operations))
    made = edits(library, operations)
    pairs = zip(taken, made, strict=True)
    return Admission(Approvals([Approval(one.row, edit) for one, edit in pairs], after), refused)


def held_back(merged: Sequence[Operation], outside: Collection[str]) -> tuple[Operation, ...]:
    """Return the merged operations, with every new text held until a person approves it.

    Texts `outside` are held already, or a person rejected them: nobody is asked twice.
    """
    held = list(merged)
    for i, op in enumerate(merged):
        if op.refused is None and op.op in ("ADD", "UPDATE"):
            why = f"{HELD}; {op.why}" if op.why else HELD
            held[i] = replace(op, refused=why, rule="held")
            if op.text in outside:
                why = "it is held already, or was rejected"
                held[i] = replace(op, refused=why, rule="duplicate")
    return tuple(held)
