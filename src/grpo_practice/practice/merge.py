"""All proposals of a step become one consistent list of operations, and the next library.

Source: Training-Free GRPO (arXiv 2510.08191), "optimisation": Add, Delete, Modify, Keep over all
proposals of the batch.
"""

from collections.abc import Iterable, Sequence

from grpo_practice.practice.replies import read_operations
from grpo_practice.practice.teacher import At, Teacher
from grpo_practice.prompts.system import experience_lines
from grpo_practice.types import Distilled, Experience, Library, Operation

NEW = "New experiences"


def proposals(distilled: Iterable[Distilled]) -> list[Operation]:
    """Every proposal that can be taken and does something, in slot order."""
    in_order = sorted(distilled, key=lambda d: d.slot)
    return [op for d in in_order for op in d.operations if op.refused is None and op.op != "NONE"]


async def merge(
    teacher: Teacher, library: Library, proposed: Sequence[Operation], at: At
) -> tuple[Operation, ...]:
    """The operations to apply. No proposal, no call.

    Raises:
        ReplyError: No reply could be read.
        EndpointError: There was no reply.
    """
    if not proposed:
        return ()
    messages = teacher.render(
        "merge",
        experiences=experience_lines(library),
        proposals=_by_experience(library, proposed),
    )
    chat = teacher.open(at, "merge", None)
    return await teacher.ask(
        chat,
        messages,
        lambda r: read_operations(r, library, limit=len(proposed), proposals=len(proposed)),
    )


def _by_experience(
    library: Library, proposed: Sequence[Operation]
) -> list[tuple[str, list[dict[str, str | None]]]]:
    """The numbered proposals (`P1` …), grouped by what they touch; new experiences first."""
    grouped: dict[str, list[dict[str, str | None]]] = {NEW: []}
    grouped |= {e.id: [] for e in library.experiences}
    for number, op in enumerate(proposed, 1):
        grouped[op.target or NEW].append({"id": f"P{number}", "op": op.op, "text": op.text})
    return [(target, items) for target, items in grouped.items() if items]


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
