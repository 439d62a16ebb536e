"""Merges all proposals of a step into one consistent list of operations and the next library.

Source: Training-Free GRPO (arXiv 2510.08191), "optimisation": Add, Delete, Modify, Keep over all
proposals in the batch.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from grpo_practice.core.prompts.system import experience_lines, library_tokens
from grpo_practice.core.text import count
from grpo_practice.core.types import (
    HOLDS,
    Distilled,
    Edit,
    Experience,
    Library,
    Operation,
    sharpens,
)
from grpo_practice.practice.evidence import NO_EVIDENCE, Evidence, evidence_text
from grpo_practice.practice.replies import FULL, LIBRARY_SIZE, read_operations
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.store.libraries import edited

NEW = "New experiences"
MOST_DISPROVED = 50
"""Maximum number of disproved texts in the prompt; the newest are the likeliest to return."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change to the library proposed by one group."""

    operation: Operation
    slot: int
    sample_id: int
    ordinal: int = 0
    """Position among the operations of its group."""


def votes(distilled: Iterable[Distilled], samples: Sequence[int]) -> list[Proposal]:
    """Return every proposal that was not refused, including confirmations, in slot order.

    `samples` contains sample ids. Index = slot.
    """
    return [
        Proposal(op, done.slot, samples[done.slot], n)
        # Sort by slot, because the numbering is part of the merge prompt, and so of its hash.
        for done in sorted(distilled, key=lambda d: d.slot)
        for n, op in enumerate(done.operations)
        if op.refused is None
    ]


def changes(cast: Iterable[Proposal]) -> list[Proposal]:
    """Return the proposals that the merge prompt shows; their order defines their numbers.

    The prompt's `P1`, `from_ops` and the record all refer to positions in this list.
    """
    return [p for p in cast if p.operation.applies]


async def merge(
    teacher: Teacher,
    library: Library,
    proposed: Sequence[Proposal],
    evidence: Mapping[str, Evidence],
    at: GroupKey,
    *,
    disproved: Sequence[str] = (),
) -> tuple[Operation, ...]:
    """Merge the proposals into one list of operations; send no request if no proposal could pass.

    `disproved` contains the texts that must not be added again, oldest first.

    Raises:
        ReplyError: No reply could be parsed.
        EndpointError: The endpoint did not reply.
    """
    if not any(_may_pass(p.operation, evidence) for p in proposed):
        return ()
    most = teacher.most_library_tokens
    messages = teacher.render(
        "merge",
        experiences=experience_lines(library),
        proposals=_by_experience(library, proposed, evidence),
        votes={name: _evidence_values(of) for name, of in evidence.items()},
        disproved=disproved[-MOST_DISPROVED:],
        size=None if most is None else {"now": library_tokens(library), "most": most},
    )
    chat = teacher.open(at, "merge", None)
    # A model may well return a NONE for each experience to keep.
    limit = len(proposed) + len(library)
    return await teacher.ask(
        chat, messages, lambda r: read_operations(r, library, limit=limit, proposals=len(proposed))
    )


def _may_pass(op: Operation, evidence: Mapping[str, Evidence]) -> bool:
    """Return True if a proposal adds, replaces a failing experience or sharpens a good one."""
    if op.target is None or not evidence[op.target].stays:
        return True
    return op.op == "UPDATE" and op.finding in HOLDS


def _with_sources(op: Operation, proposed: Sequence[Proposal]) -> Operation:
    """Fill in the proposals that an operation is based on, if the reply does not name any.

    By default these are all proposals about the same experience. For an addition, they are only the
    proposals with the same words, or else the most similar proposal: if all additions were taken,
    the operation would be credited with votes for unrelated proposals.
    """
    if op.from_ops or op.op == "NONE":
        return op
    alike = [i for i, p in enumerate(proposed) if p.operation.target == op.target]
    if op.op == "ADD" and alike:
        said = {i: _likeness(proposed[i].operation.text or "", op.text or "") for i in alike}
        most = max(said.values())
        alike = [i for i, likeness in said.items() if likeness == most][: None if most == 1 else 1]
    return replace(op, from_ops=tuple(alike))


def _likeness(one: str, other: str) -> float:
    """Return the share of words that two texts have in common, from 0 to 1."""
    words = set(one.casefold().split()), set(other.casefold().split())
    either = len(words[0] | words[1])
    return len(words[0] & words[1]) / either if either else 1.0


def _by_experience(
    library: Library, proposed: Sequence[Proposal], evidence: Mapping[str, Evidence]
) -> list[tuple[str, list[dict[str, str | None]]]]:
    """Group the numbered proposals (`P1` …) by the experience they concern, new experiences first.

    An experience that the evidence removes is listed even if no proposal concerns it. Otherwise the
    model would reject a similar new experience as its duplicate.
    """
    grouped: dict[str, list[dict[str, str | None]]] = {NEW: []}
    grouped |= {e.id: [] for e in library.experiences}
    for n, op in enumerate((proposal.operation for proposal in proposed), 1):
        shown = {"id": f"P{n}", "op": op.op, "finding": op.finding, "text": op.text}
        grouped[op.target or NEW].append(shown)
    gone = {name for name, of in evidence.items() if not of.stays}
    return [(target, items) for target, items in grouped.items() if items or target in gone]


def _evidence_values(evidence: Evidence) -> dict[str, object]:
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
    """Refuse the merged operations that the evidence contradicts.

    An experience that the evidence supports may only be made clearer or wider; any other may be
    replaced or removed. An update that is based only on proposals of new experiences might reverse
    the meaning of its target, so the questions behind those proposals count against the target. An
    addition that is based only on proposals against a supported experience is refused as well. So
    is an addition that a single question asks for, if a proven experience already raises the reward
    of that question: the lesson may contradict that experience.
    """
    found = [_with_sources(op, proposed) for op in merged]
    return tuple(_voted(op, [proposed[i] for i in op.from_ops], evidence) for op in found)


def _voted(
    op: Operation, behind: Sequence[Proposal], evidence: Mapping[str, Evidence]
) -> Operation:
    if op.refused is not None or op.op == "NONE":
        return op
    asked, said = [p.operation for p in behind], ""
    if op.target is not None:
        found = evidence[op.target]
        op = replace(op, disproved=found.disproved)
        named = any(one.target == op.target for one in asked)
        # A proposal of something new does not count against existing experiences, unless the
        # update has no other basis.
        alone = op.op == "UPDATE" and not named
        others = {p.sample_id for p in behind if alone and p.operation.target is None}
        passes = found.stays if sharpens(op, asked) else not found.opposed_by(others).stays
    else:
        against = [one.target for one in asked if one.target and not _may_pass(one, evidence)]
        passes = not against or len(against) < len(asked)
        found = evidence[against[0]] if against else NO_EVIDENCE
        if passes and (served_by := _served_by({p.sample_id for p in behind}, evidence)):
            said = f"{served_by} already serves its only question: "
            passes, found = False, evidence[served_by]
    why = f"outvoted: {said}{evidence_text(found)}"
    return op if passes else replace(op, refused=why, rule="outvoted")


def _served_by(samples: Set[int], evidence: Mapping[str, Evidence]) -> str | None:
    """Return the proven experience that raises the reward of the only sample, if there is one."""
    if len(samples) != 1:
        return None
    return next(
        (e for e, of in evidence.items() if of.proven and samples <= of.changes.keys()), None
    )


def pruned(
    library: Library, merged: Sequence[Operation], evidence: Mapping[str, Evidence]
) -> tuple[Operation, ...]:
    """Return removals of experiences that the evidence contradicts and the merge left alone."""
    changed = {op.target for op in merged if op.refused is None and op.op != "NONE"}
    return tuple(
        Operation("DELETE", e.id, why=evidence_text(found), disproved=found.disproved)
        for e, found in ((e, evidence[e.id]) for e in library.experiences)
        if e.id not in changed and not found.stays
    )


def fitting(
    library: Library, merged: Sequence[Operation], removed: Sequence[Operation]
) -> tuple[Operation, ...]:
    """Return the merged operations, refusing additions that exceed the library's size."""
    # Count a removal only if it is certain; it may itself have been refused.
    taken = [op for op in (*merged, *removed) if op.refused is None]
    room = LIBRARY_SIZE - len(library) + sum(op.op == "DELETE" for op in taken)
    made = list[Operation]()
    for op in merged:
        if op.op == "ADD" and op.refused is None:
            room -= 1
            if room < 0:
                op = replace(op, refused=FULL, rule="library_full")
        made.append(op)
    return tuple(made)


def within(
    most: int,
    library: Library,
    merged: Sequence[Operation],
    removed: Sequence[Operation],
    proposed: Sequence[Proposal],
    evidence: Mapping[str, Evidence],
) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """Return the operations, adjusted so that the library has at most `most` tokens.

    Texts with the least support are dropped first; among equals, the newest. A new text is refused;
    an experience already in the library is removed.
    """
    merged, made = list(merged), edits(library, merged, removed, proposed)
    added = {e.label: i for i, e in enumerate(made) if e.operation.op == "ADD" and e.label}
    after, removed = edited(library, made), list(removed)

    def behind(one: Experience) -> Evidence:
        if one.label not in added:
            return evidence[one.id]
        sources = _with_sources(merged[added[one.label]], proposed).from_ops
        return Evidence({proposed[i].sample_id: 1 for i in sources})

    left = sorted(after.experiences, key=lambda one: (behind(one).support, -one.label))
    while left and library_tokens(replace(after, experiences=tuple(left))) > most:
        one = left.pop(0)
        why = f"no room in {most:,} tokens: {count(behind(one).supporting, 'question')} for it"
        if one.label in added:
            place = added[one.label]
            merged[place] = replace(merged[place], refused=why, rule="outvoted")
        else:
            removed.append(Operation("DELETE", one.id, why=why))
    return tuple(merged), tuple(removed)


def edits(
    library: Library,
    merged: Iterable[Operation],
    removed: Iterable[Operation] = (),
    proposed: Sequence[Proposal] = (),
) -> tuple[Edit, ...]:
    """Turn operations into edits, in order; only this function assigns labels.

    Refused operations and NONE get no label. `from_ops` holds positions in `proposed`.
    """
    # Not the highest label + 1, which would reuse the label of a removed experience.
    next_label, made = library.next_label, list[Edit]()
    for pruned, op in [*((False, op) for op in merged), *((True, op) for op in removed)]:
        label = int(op.target[1:]) if op.target else None
        if not op.applies:
            label = None
        elif op.op == "ADD":
            label = next_label
            next_label += 1
        behind = [proposed[i] for i in op.from_ops if i < len(proposed)]
        made.append(Edit(op, label, tuple((p.slot, p.ordinal) for p in behind), pruned))
    return tuple(made)


def apply(library: Library, operations: Iterable[Operation]) -> Library:
    """Return the library after the operations are applied in order."""
    return edited(library, edits(library, operations))
