"""Gates that a merge passes, in order, before the step is closed.

A gate refuses operations or adds removals. Each is an async function of a `Merge` and a `Change`
that returns the `Change` for the next gate. Define a new gate in this file and list it in `GATES`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from grpo_practice.core.types import Group, Library, Operation, Quarantine
from grpo_practice.practice.answer_guard import StepGuard
from grpo_practice.practice.approval import held_back
from grpo_practice.practice.context import Practice
from grpo_practice.practice.evidence import Evidence
from grpo_practice.practice.lint import quarantine
from grpo_practice.practice.merge import Proposal, fitting, pruned, within, without_outvoted
from grpo_practice.practice.repetition import without_repeated
from grpo_practice.practice.transcript import transcript_of
from grpo_practice.practice.web_provenance import Source, read_in, supported
from grpo_practice.store.queries.held import texts_outside


@dataclass(frozen=True, slots=True)
class Change:
    """A change to the library on its way from the merge to the record."""

    merged: tuple[Operation, ...] = ()
    """Operations of the merge, including refused ones."""
    removed: tuple[Operation, ...] = ()
    """Removals added by a gate, not by the merge."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All operations, in the order in which they are applied."""
        return (*self.merged, *self.removed)


@dataclass(frozen=True, slots=True)
class Merge:
    """The inputs that a gate has in addition to the change itself."""

    job: Practice
    step: int
    library: Library
    """Library before the change."""
    groups: Mapping[int, Group]
    """Slot → group, for all groups that were played."""
    proposed: Sequence[Proposal]
    """Proposals in the order in which the merge prompt numbers them."""
    evidence: Mapping[str, Evidence]
    """Evidence for and against each experience of the library."""
    disproved: Sequence[str] = ()
    """Texts that earlier steps removed because rewards fell with them."""
    guard: StepGuard | None = None


Gate = Callable[[Merge, Change], Awaitable[Change]]


async def quarantine_unsafe(step: Merge, change: Change) -> Change:
    """Quarantine texts that the lint rules refuse or that reveal an answer."""

    def gives_away(op: Operation) -> Quarantine | None:
        behind = [step.proposed[i].slot for i in op.from_ops if i < len(step.proposed)]
        return answer_given_away(step.guard, op, behind or step.groups.keys())

    return replace(change, merged=quarantine(change.merged, gives_away))


def answer_given_away(
    guard: StepGuard | None, op: Operation, slots: Collection[int]
) -> Quarantine | None:
    """Return why an operation learnt from these groups reveals an answer; None if it does not."""
    return guard.why_not(op.text or "", slots) if guard else None


async def quarantine_one_site(step: Merge, change: Change) -> Change:
    """Quarantine text from a single web site, unless the site is trusted or a person decides."""
    tools, settings = step.job.page_tools, step.job.settings
    groups = [Source(said, read_in(step.groups[i], tools)) for i, said in _proposed(step).items()]
    check = partial(supported, trusted=settings.trusted_sites, hold=settings.approve)
    # Run in a thread: 20 MB of pages take a second, and rollouts are being played in parallel.
    return replace(
        change, merged=await asyncio.to_thread(check, change.merged, groups, _own_texts(step))
    )


async def quarantine_repeated(step: Merge, change: Change) -> Change:
    """Quarantine sentences copied from an attempt, unless an independent comparison agrees."""
    proposed = _proposed(step)

    def check() -> tuple[Operation, ...]:
        attempts = {
            slot: [transcript_of(rollout).text for rollout in step.groups[slot].teachable]
            for slot in proposed
        }
        hold = step.job.settings.approve
        return without_repeated(change.merged, attempts, proposed, _own_texts(step), hold=hold)

    return replace(change, merged=await asyncio.to_thread(check))


def _proposed(step: Merge) -> Mapping[int, Sequence[str]]:
    """Return the proposed texts by slot; '' for an operation without text."""
    texts = defaultdict[int, list[str]](list)
    for proposal in step.proposed:
        texts[proposal.slot].append(proposal.operation.text or "")
    return texts


def _own_texts(step: Merge) -> list[str]:
    """Return the texts that an experience may repeat: questions, instructions and the library."""
    teacher = step.job.teacher
    told = [teacher.instructions, teacher.agent_objective, teacher.learning_objective]
    questions = [group.sample.question for group in step.groups.values()]
    return [*filter(None, told), *questions, *(e.text for e in step.library.experiences)]


async def refuse_outvoted(step: Merge, change: Change) -> Change:
    """Refuse operations that the evidence contradicts."""
    return replace(change, merged=without_outvoted(change.merged, step.proposed, step.evidence))


async def hold_for_approval(step: Merge, change: Change) -> Change:
    """Hold new texts until a person approves them, if the config requires approval."""
    job = step.job
    if not job.settings.approve:
        return change
    outside = job.store.read(texts_outside, job.branch.id, until=step.step - 1)
    return replace(change, merged=held_back(change.merged, outside))


async def remove_disproved(step: Merge, change: Change) -> Change:
    """Remove experiences that the evidence contradicts, unless the merge changes them."""
    return replace(change, removed=pruned(step.library, change.merged, step.evidence))


async def refuse_without_room(step: Merge, change: Change) -> Change:
    """Refuse additions beyond the maximum size of the library."""
    return replace(change, merged=fitting(step.library, change.merged, change.removed))


async def keep_within_tokens(step: Merge, change: Change) -> Change:
    """Shrink a library that exceeds its token limit, least supported texts first."""
    most = step.job.settings.max_library_tokens
    if most is None:
        return change
    merged, removed = within(
        most, step.library, change.merged, change.removed, step.proposed, step.evidence
    )
    return Change(merged, removed)


# The order is part of the method. Quarantine comes before voting, so that a quarantined text
# wins no vote, and nobody is asked to approve a refused text. A held operation neither saves an
# experience from removal nor takes up space. Removals come before additions because they free
# space. No gate revises the refusal of an earlier one.
GATES: Sequence[Gate] = (
    quarantine_unsafe,
    quarantine_one_site,
    quarantine_repeated,
    refuse_outvoted,
    hold_for_approval,
    remove_disproved,
    refuse_without_room,
    keep_within_tokens,
)
