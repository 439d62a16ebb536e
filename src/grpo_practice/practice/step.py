"""Runs one step: plays its groups, distils each as it ends, merges, applies gates and closes."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from grpo_practice.core.errors import PausedError, RunFailedError, StepError, unanswered
from grpo_practice.core.events import GroupDistilled, GroupFinished, GroupStored, StepFinished
from grpo_practice.core.types import (
    QUARANTINE,
    Distilled,
    Group,
    Library,
    Operation,
    Quarantine,
    QuarantineRule,
    RefusedRule,
)
from grpo_practice.practice.answer_guard import StepGuard
from grpo_practice.practice.approval import admitted
from grpo_practice.practice.context import Practice
from grpo_practice.practice.distil import distil
from grpo_practice.practice.evidence import evidence_on
from grpo_practice.practice.gates import GATES, Change, Merge, answer_given_away
from grpo_practice.practice.lint import quarantine
from grpo_practice.practice.merge import changes, edits, merge, votes
from grpo_practice.practice.step_rollouts import StepRollouts
from grpo_practice.practice.teacher import GroupKey
from grpo_practice.practice.trials import on_trial
from grpo_practice.practice.usefulness import LEAST, are_repeated, are_useless, useless_error
from grpo_practice.rollout.groups.informative import Status, status_of
from grpo_practice.rollout.groups.step_sums import group_row, mean_reward, parts_of, step_stats
from grpo_practice.rollout.play import begin
from grpo_practice.store import datasets
from grpo_practice.store.distillation import DISTILLATION, HARMLESS, Distillation, frequencies
from grpo_practice.store.libraries import edited
from grpo_practice.store.queries import past_votes
from grpo_practice.store.queries.held import held
from grpo_practice.store.queries.traced import MERGE
from grpo_practice.store.records import Approvals, GroupRow, Part, Play, StepResult, StepRow


class PracticeStep:
    """A step in progress: its groups as they finish, and the lessons distilled from them.

    Args:
        job: The run.
        tasks: Task group of the step's tasks; an error in one of them ends the run.
        row: The step as stored.
        before: The library of the previous step; None for the first step.
    """

    def __init__(
        self, job: Practice, tasks: asyncio.TaskGroup, row: StepRow, before: Library | None
    ) -> None:
        self._job, self._tasks = job, tasks
        self._teacher = replace(job.teacher, round=row.pauses)
        samples = job.store.read(datasets.samples_of, row.plan)
        self._sample_ids = [sample.id for sample in samples]
        self._answers = [sample.answer for sample in samples]
        self._guard: StepGuard | None = None
        """Guard for the step's answers; created when the first operation is checked."""
        self._library: Library | None = None
        """Library that the step starts from and edits; set by `open`."""
        self._rollouts = StepRollouts(job, tasks, row, samples, before, self._on_group)
        self._groups = dict[int, Group]()
        self._teaching = list[asyncio.Task[None]]()
        self._distilled = dict[int, Distilled]()

    async def open(
        self, library: Library, *, ahead: "PracticeStep | None" = None, groups: int | None = None
    ) -> None:
        """Play and distil all groups, or the first `groups` of them, starting from the library.

        The early groups of the step `ahead` may begin in the meantime.
        """
        await self._rollouts.open(library, self._on_trial(library))
        # Set this only after the store has recorded that the step is open, because from
        # then on groups are distilled as they end.
        self._library = library
        # Early groups may have ended before the library was known.
        for group in [*self._groups.values()]:
            self._teach(group, library)
        await self._rollouts.play_step(ahead=ahead._rollouts if ahead else None, most=groups)
        # Not gather(), because the task group owns these tasks and cancels all of them on the first
        # error.
        for task in self._teaching:
            await task

    def _on_trial(self, library: Library) -> Sequence[str]:
        """Return the experiences on trial in this step; none if rewards must not decide."""
        if not self._teacher.truth:
            return ()
        end = self._rollouts.row.plan.step
        past = self._job.store.read(past_votes.past, self._job.branch, library, end=end)
        return on_trial(library, evidence_on(library, past))

    async def pilot(self, library: Library, groups: int) -> None:
        """Play and distil the first groups.

        Raises:
            RunFailedError: All comparisons were useless.
        """
        await self.open(library, groups=groups)
        await self._check_use(Change())

    async def run(self, library: Library, *, ahead: "PracticeStep | None" = None) -> int:
        """Play, distil, merge, apply the gates and close; return the id of the next library.

        While this step is open, the early groups of the step `ahead` may begin. Once it is closed,
        no more of them begin until the step ahead is opened.

        Raises:
            PausedError: All comparisons were useless.
        """
        await self.open(library, ahead=ahead)
        distilled = self._by_slot()
        step = self._merge_of(distilled, library)
        teacher, change, failed = self._teacher, Change(), None
        try:
            merged = await merge(
                teacher,
                library,
                step.proposed,
                step.evidence,
                self._key(),
                disproved=step.disproved,
            )
        except StepError as e:
            # Errors that stop a run are not StepErrors. If only the merge failed, the library
            # stays unchanged.
            failed = e
        else:
            step, change = replace(step, guard=await self._step_guard()), Change(merged)
            for gate in GATES:
                change = await gate(step, change)
        await self._check_use(change)
        library_id = await self._close(step, distilled, change, failed)
        if ahead is not None:
            ahead._rollouts.hold_early_groups()
        return library_id

    def _by_slot(self) -> list[Distilled]:
        # Not in order of completion, because the merge prompt must not depend on timing.
        return [done for _, done in sorted(self._distilled.items())]

    async def _check_use(self, change: Change) -> None:
        """Raise if all comparisons were useless; record a pause if they should be repeated."""
        job, row, distilled = self._job, self._rollouts.row, self._by_slot()
        # A pilot is small, and its purpose is to find exactly this.
        least = LEAST if job.pilot is None else 1
        if not are_useless(distilled, change.operations, least):
            return
        step = row.plan.step
        kind = PausedError if job.pilot is None else RunFailedError
        error = useless_error(step, distilled, change.operations, kind)
        if are_repeated(distilled, change.operations):
            # The next command takes the number of pauses as its round, and thus sends new seeds.
            await job.store.pause_step(job.branch, step, row.pauses + 1)
        await job.drain(error)
        raise error

    async def _close(
        self, step: Merge, distilled: Sequence[Distilled], change: Change, failed: StepError | None
    ) -> int:
        made = edits(step.library, change.merged, change.removed, step.proposed)
        merged = edited(step.library, made)
        approvals = self._approvals(merged)
        after = approvals.library if approvals else merged
        why = f"{type(failed).__name__}: {failed}" if failed else None
        groups = [group for _, group in sorted(self._groups.items())]
        rows = [self._row(group) for group in groups]
        mean = mean_reward(groups)
        counts = distillation(distilled, change.merged, change.removed, len(after))
        stats = step_stats(groups, rows) | {
            "mean_reward": mean,
            "experiences": len(after),
            "quarantined": sum(counts.quarantined.values()),
            "merge_failed": why,
            DISTILLATION: counts.document(),
        }
        result = StepResult(
            groups=rows,
            distilled=distilled,
            edits=made,
            library=merged,
            stats=stats,
            failed=why,
            unanswered=unanswered(failed),
            approvals=approvals,
        )
        plan, informative = self._rollouts.row.plan, sum(row.informative for row in rows)
        finished = partial(StepFinished, plan.step, mean, informative, len(after), why)
        # Use a separate task and wait(), so that cancelling this coroutine does not cancel the
        # closing.
        closing = asyncio.ensure_future(
            self._job.store.close_practice(self._job.branch, plan.step, result)
        )
        try:
            await asyncio.wait([closing])
        except asyncio.CancelledError:
            # The writer closes the step even if this task is cancelled, so the event must still
            # be emitted.
            await asyncio.wait([closing])
            if closing.exception() is None:
                self._job.emit(finished())
            raise
        library_id = closing.result()
        self._job.emit(finished())
        self._stored(MERGE)
        return library_id

    def _approvals(self, library: Library) -> Approvals | None:
        """Return the approvals given during the step, as edits to the merged library."""
        job, step = self._job, self._rollouts.row.plan.step
        found = job.store.read(held, job.branch.id, until=step)
        approvals = admitted(library, [one for one in found if one.approved]).approvals
        return approvals if approvals.approved else None

    def _on_group(self, group: Group) -> None:
        self._groups[group.slot] = group
        informative = self._status(group) == "scored"
        self._job.emit(GroupFinished(self._rollouts.row.plan.step, group.slot, informative))
        if self._library is not None:
            self._teach(group, self._library)

    def _teach(self, group: Group, library: Library) -> None:
        """Start to distil a group if it is informative, without waiting for other groups."""
        if self._status(group) == "scored":
            self._teaching.append(begin(self._tasks, self._distil(group, library)))
        else:
            self._stored(group.slot)

    def _status(self, group: Group) -> Status:
        return status_of(group, truth=self._job.teacher.truth)

    async def _distil(self, group: Group, library: Library) -> None:
        key, slot = self._key(group.slot), group.slot
        guard = await self._step_guard()

        def gives_away(op: Operation) -> Quarantine | None:
            return answer_given_away(guard, op, [slot])

        teacher = self._teacher
        shown = partial(self._rollouts.shown, slot)
        done = await distil(teacher, group, library, key, shown=shown, gives_away=gives_away)
        # Check before storing and proposing, because the merge must not see a text that reveals an
        # answer.
        checked = quarantine(done.operations, gives_away)
        self._distilled[slot] = done = replace(done, operations=checked)
        self._job.emit(
            GroupDistilled(key.step, slot, len(done.lessons), len(done.operations), done.failed)
        )
        self._stored(slot)

    def _stored(self, slot: int) -> None:
        self._job.emit(GroupStored(self._job.branch.run, self._rollouts.row.plan.step, slot))

    async def _step_guard(self) -> StepGuard | None:
        """Return the guard for the step's answers; None if `answer_guard` is off."""
        if self._guard is None and self._job.guard is not None:
            self._guard = await self._job.guard.of(self._answers)
        return self._guard

    def _merge_of(self, distilled: Sequence[Distilled], library: Library) -> Merge:
        """Collect the proposals and the evidence from this step and earlier ones."""
        cast = votes(distilled, self._sample_ids)
        step = self._rollouts.row.plan.step
        past = self._job.store.read(past_votes.past, self._job.branch, library, end=step)
        # A group played without an experience may vote for it, but not against it.
        named = [
            (p.sample_id, p.operation)
            for p in cast
            if p.operation.vote > 0
            or p.operation.target in past.shown.get(self._rollouts.library_of(p.slot).id, ())
        ]
        truth = self._job.teacher.truth
        evidence = evidence_on(library, past, named, self._plays(), rewards=truth)
        proposed = changes(cast)
        return Merge(self._job, step, library, self._groups, proposed, evidence, past.disproved)

    def _plays(self) -> list[Play]:
        groups = [group for _, group in sorted(self._groups.items())]
        mean = mean_reward(groups)
        if mean is None:
            return []
        return [
            Play(group.sample.id, self._rollouts.library_of(group.slot).id, part, mean)
            for group in groups
            for part in self._parts(group)
        ]

    def _parts(self, group: Group) -> list[Part]:
        return parts_of(group, partial(self._rollouts.left_out, group.slot))

    def _key(self, slot: int = -1) -> GroupKey:
        plan = self._rollouts.row.plan
        return GroupKey(self._job.branch.id, plan.step, plan.epoch, slot)

    def _row(self, group: Group) -> GroupRow:
        return group_row(
            group,
            self._status(group),
            self._distilled.get(group.slot),
            planned=self._rollouts.row.attempts(group.slot),
            library_id=self._rollouts.library_of(group.slot).id,
            parts=self._parts(group),
        )


def distillation(
    distilled: Iterable[Distilled],
    merged: Sequence[Operation],
    removed: Sequence[Operation],
    experiences: int,
) -> Distillation:
    """Return the counts of a closed step, stored so that reports need not read its operations.

    `distilled` is in slot order; `removed` are removals added by a gate, and `experiences` is the
    size of the library that the step produced.
    """
    groups = list(distilled)
    asked = [op for done in groups for op in done.operations]
    proposed = [op for op in asked if op.op != "NONE"]
    rules = [op.rule for op in (*asked, *merged) if op.rule is not None]
    refused = frequencies(rule for rule in rules if rule not in QUARANTINE)
    return Distillation(
        informative=len(groups),
        compared=sum(done.compared for done in groups),
        failed=frequencies(done.failed_kind for done in groups if done.failed_kind),
        unsummarised=sum(len(done.unread) for done in groups),
        shortened=sum(done.shortened for done in groups),
        cut_chars=sum(done.cut_chars for done in groups),
        lessons=sum(len(done.lessons) for done in groups),
        proposals=len(proposed),
        confirmed=sum(op.op == "NONE" and op.target is not None for op in asked),
        outvoted=refused.pop("outvoted", 0),
        held=refused.pop("held", 0),
        refused=cast(Mapping[RefusedRule, int], refused),
        quarantined=cast(
            Mapping[QuarantineRule, int], frequencies(rule for rule in rules if rule in QUARANTINE)
        ),
        lost=_lost(proposed, merged),
        removed=len(removed),
        experiences=experiences,
    )


def _lost(proposed: Sequence[Operation], merged: Sequence[Operation]) -> int:
    """Count the proposals that had no effect because they were refused or quarantined.

    A NONE in the merge uses up no proposal. If all operations of a merge are lost, all proposals
    are lost too.
    """
    made = [op for op in merged if op.op != "NONE"]
    if made and all(map(_is_lost, made)):
        return sum(_is_lost(op) or op.refused is None for op in proposed)
    became = defaultdict[int, list[bool]](list)
    for op in made:
        for i in op.from_ops:
            became[i].append(_is_lost(op))
    return sum(map(_is_lost, proposed)) + sum(map(all, became.values()))


def _is_lost(op: Operation) -> bool:
    return op.rule is not None and op.rule not in HARMLESS
