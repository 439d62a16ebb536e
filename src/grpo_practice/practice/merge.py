"""All proposals of a step become one consistent list of operations, and the next library.

Source: Training-Free GRPO (arXiv 2510.08191), "optimisation": Add, Delete, Modify, Keep over all
proposals of the batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_practice.practice.evidence import Evidence, told
from grpo_practice.practice.replies import read_operations
from grpo_practice.practice.teacher import At, Teacher
from grpo_practice.prompts.system import experience_lines
from grpo_practice.text import count
from grpo_practice.types import SHARPENS, Distilled, Experience, Library, Operation

NEW = "New experiences"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of the library that one group proposes."""

    operation: Operation
    slot: int
    sample_id: int


def votes(distilled: Iterable[Distilled], samples: Sequence[int]) -> list[Proposal]:
    """Return every proposal that can be taken, confirmations too, in slot order.

    Args:
        distilled: What the groups of a step came to.
        samples: Sample ids. Index = slot.
    """
    return [
        Proposal(op, done.slot, samples[done.slot])
        for done in sorted(distilled, key=lambda d: d.slot)
        for op in done.operations
        if op.refused is None
    ]


def changes(cast: Iterable[Proposal]) -> list[Proposal]:
    """Return the proposals that would change something, as the merge prompt numbers them."""
    return [p for p in cast if p.operation.op != "NONE"]


async def merge(
    teacher: Teacher,
    library: Library,
    proposed: Sequence[Proposal],
    evidence: Mapping[str, Evidence],
    at: At,
) -> tuple[Operation, ...]:
    """Return the operations that the proposals come to. No proposal that may pass, no call.

    Raises:
        ReplyError: No reply could be read.
        EndpointError: There was no reply.
    """
    if not any(_may_pass(p.operation, evidence) for p in proposed):
        return ()
    messages = teacher.render(
        "merge",
        experiences=experience_lines(library),
        proposals=_by_experience(library, proposed),
        votes={name: _shown(of) for name, of in evidence.items()},
    )
    chat = teacher.open(at, "merge", None)
    limit = len(proposed) + len(library)  # a model may well say NONE of what is to stay
    return await teacher.ask(
        chat,
        messages,
        lambda r: read_operations(r, library, limit=limit, proposals=len(proposed)),
    )


def _may_pass(op: Operation, evidence: Mapping[str, Evidence]) -> bool:
    return op.target is None or op.finding in SHARPENS or not evidence[op.target].stays


def _by_experience(
    library: Library, proposed: Sequence[Proposal]
) -> list[tuple[str, list[dict[str, str | None]]]]:
    """Return the numbered proposals (`P1` …) by what they touch, new experiences first."""
    grouped: dict[str, list[dict[str, str | None]]] = {NEW: []}
    grouped |= {e.id: [] for e in library.experiences}
    for number, proposal in enumerate(proposed, 1):
        op = proposal.operation
        told = {"id": f"P{number}", "op": op.op, "finding": op.finding, "text": op.text}
        grouped[op.target or NEW].append(told)
    return [(target, items) for target, items in grouped.items() if items]


def _shown(evidence: Evidence) -> dict[str, object]:
    return {
        "supporting": count(evidence.supporting, "question"),
        "opposing": count(evidence.opposing, "question"),
        "change": None if evidence.change is None else f"{evidence.change:+.2f}",
        "asked": count(len(evidence.changes), "question"),
        "stays": evidence.stays,
    }


def without_outvoted(
    merged: Iterable[Operation], proposed: Sequence[Proposal], evidence: Mapping[str, Evidence]
) -> tuple[Operation, ...]:
    """Return the merged operations, those refused that more speaks against than for.

    An update that makes an experience clearer or wider passes. One that only takes in proposals of
    new experiences may turn what it says round, so the questions behind these count against it.
    """
    return tuple(_voted(op, [proposed[i] for i in op.from_ops], evidence) for op in merged)


def _voted(
    op: Operation, behind: Sequence[Proposal], evidence: Mapping[str, Evidence]
) -> Operation:
    if op.refused is not None or op.target is None:
        return op
    of_target = [p.operation for p in behind if p.operation.target == op.target]
    sharpens = op.op == "UPDATE" and any(of_target) and all(p.vote > 0 for p in of_target)
    taken_in = len({p.sample_id for p in behind if p.operation.target is None})
    found = evidence[op.target]
    if sharpens or found.support < taken_in:
        return op
    return replace(op, refused=f"outvoted: {told(found)}", rule="outvoted")


def pruned(
    library: Library, merged: Sequence[Operation], evidence: Mapping[str, Evidence]
) -> tuple[Operation, ...]:
    """Return the removals of what more speaks against than for, where the merge left it alone."""
    touched = {op.target for op in merged if op.refused is None}
    return tuple(
        Operation("DELETE", e.id, why=told(evidence[e.id]))
        for e in library.experiences
        if e.id not in touched and not evidence[e.id].stays
    )


def apply(library: Library, operations: Iterable[Operation]) -> Library:
    """The library after the operations, in order; refused ones and NONE change nothing.

    Labels are given in order of the list and never used twice, also when their experience is gone.
    """
    texts = {e.label: e.text for e in library.experiences}
    next_label = library.next_label
    for op in operations:
        if op.refused is not None or op.op == "NONE":
            continue
        if op.op == "ADD":
            texts[next_label] = op.text or ""
            next_label += 1
            continue
        label = int((op.target or "E0")[1:])
        if op.op == "UPDATE":
            texts[label] = op.text or ""
        else:
            del texts[label]
    items = tuple(Experience(label, text) for label, text in texts.items())
    return Library(items, next_label)
