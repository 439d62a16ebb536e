"""One step: its groups are played, distilled as they end, merged, and closed in one transaction."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from grpo_practice.errors import StepError, unanswered
from grpo_practice.events import GroupDistilled, GroupFinished, StepFinished
from grpo_practice.practice.context import Practice
from grpo_practice.practice.distil import distil
from grpo_practice.practice.evidence import Evidence, evidence_on
from grpo_practice.practice.informative import Status, status_of
from grpo_practice.practice.lint import quarantine
from grpo_practice.practice.merge import (
    Proposal,
    changes,
    edited,
    edits,
    fitting,
    merge,
    pruned,
    votes,
    without_outvoted,
)
from grpo_practice.practice.step_rollouts import Playing
from grpo_practice.practice.step_stats import (
    distillation,
    group_row,
    mean_reward,
    step_stats,
)
from grpo_practice.practice.teacher import GroupKey
from grpo_practice.practice.web_provenance import Pages, read_in, supported
from grpo_practice.store import datasets
from grpo_practice.store.distillation import DISTILLATION
from grpo_practice.store.queries import past_votes
from grpo_practice.store.records import GroupRow, Past, Play, StepResult, StepRow
from grpo_practice.types import Distilled, Group, Library, Operation, Quarantine


class Step:
    """One step under way: its groups as they finish, and what they teach.

    Args:
        job: The run.
        tasks: Where what it starts is at home: what fails there ends all of it.
        row: The step as it stands.
        before: The library of the step before; None for the first one.
    """

    def __init__(
        self,
        job: Practice,
        tasks: asyncio.TaskGroup,
        row: StepRow,
        before: Library | None,
    ) -> None:
        self._job, self._tasks = job, tasks
        samples = job.store.read(datasets.samples_of, row.plan)
        self._sample_ids = [sample.id for sample in samples]
        self._guard = job.guard.of([sample.answer for sample in samples]) if job.guard else None
        self._library = Library()
        """What it is played with, early groups apart, and what it changes; known once it opens."""
        self._playing = Playing(job, tasks, row, samples, before, self._on_group)
        self._groups = dict[int, Group]()
        self._teaching = list[asyncio.Task[None]]()
        self._distilled = dict[int, Distilled]()
        self._evidence = dict[str, Evidence]()
        """For and against each experience of the library; known at the merge."""
        self._proposed = list[Proposal]()
        """Proposals as the merge numbers them; known at the merge."""

    async def open(
        self, library: Library, *, ahead: "Step | None" = None, groups: int | None = None
    ) -> None:
        """Play and distil its groups, or only the first ones; early ones of the step ahead too."""
        self._library = library
        await self._playing.open(library)
        await self._playing.play(ahead=ahead._playing if ahead else None, most=groups)
        for task in self._teaching:
            await task

    async def run(self, library: Library, *, ahead: "Step | None" = None) -> int:
        """Play, distil, merge, close; the id of the next library.

        Meanwhile the step ahead may have begun to play its early groups; from here on it waits.
        """
        await self.open(library, ahead=ahead)
        merged, failed = await self._merge()
        removed = () if failed else pruned(library, merged, self._evidence)
        merged = fitting(library, merged, removed)
        made = edits(library, merged, removed, self._proposed)
        after = edited(library, made)
        groups = [group for _, group in sorted(self._groups.items())]
        rows = [self._row(group) for group in groups]
        mean = mean_reward(groups, weight=self._playing.weight)
        distilled = [done for _, done in sorted(self._distilled.items())]
        counts = distillation(distilled, merged, removed, len(after))
        stats = step_stats(groups, rows) | {
            "mean_reward": mean,
            "mean_reward_over": "weighted" if self._job.skip_uniform else "all",
            "experiences": len(after),
            "quarantined": sum(counts.quarantined.values()),
            "merge_failed": _said(failed) if failed else None,
            DISTILLATION: counts.document(),
        }
        result = StepResult(
            groups=rows,
            distilled=distilled,
            edits=made,
            library=after,
            stats=stats,
            failed=_said(failed) if failed else None,
            unanswered=unanswered(failed),
        )
        step, informative = self._playing.row.plan.step, sum(row.informative for row in rows)
        closed = StepFinished(step, mean, informative, len(after), result.failed)
        library_id = await self._close(result, closed)
        if ahead is not None:
            ahead._playing.wait()
        return library_id

    async def _close(self, result: StepResult, closed: StepFinished) -> int:
        """Close the step and say so; what is stored is said also where the run is cancelled."""
        store, branch = self._job.store, self._job.branch
        closing = asyncio.ensure_future(store.close_practice(branch, closed.step, result))
        try:
            await asyncio.wait([closing])
        except asyncio.CancelledError:
            await asyncio.wait([closing])
            if closing.exception() is None:
                self._job.emit(closed)
            raise
        library_id = closing.result()
        self._job.emit(closed)
        return library_id

    def _on_group(self, group: Group) -> None:
        """The group is distilled as soon as its last rollout is scored: no barrier between."""
        self._groups[group.slot] = group
        informative = self._status(group) == "scored"
        self._job.emit(GroupFinished(self._playing.row.plan.step, group.slot, informative))
        if informative:
            self._teaching.append(self._tasks.create_task(self._distil(group)))

    def _status(self, group: Group) -> Status:
        return status_of(group, truth=self._job.teacher.truth)

    async def _distil(self, group: Group) -> None:
        at, shown = self._at(group.slot), self._playing.shown(group.slot)
        done = await distil(self._job.teacher, group, self._library, at, shown=shown)
        checked = quarantine(done.operations, lambda op: self._gives_away(op, [group.slot]))
        done = replace(done, operations=checked)
        self._distilled[group.slot] = done
        self._job.emit(
            GroupDistilled(
                at.step, group.slot, len(done.lessons), len(done.operations), done.failed
            )
        )

    async def _merge(self) -> tuple[tuple[Operation, ...], StepError | None]:
        """Return the merged operations, or none and why the merge failed."""
        cast = votes(self._distilled.values(), self._sample_ids)
        proposed = self._proposed = changes(cast)
        self._evidence = self._weigh(cast)
        try:
            merged = await merge(
                self._job.teacher, self._library, proposed, self._evidence, self._at()
            )
        except StepError as e:
            return (), e
        merged = quarantine(merged, lambda op: self._gives_away(op, self._behind(op, proposed)))
        pages = self._pages(proposed)
        merged = await asyncio.to_thread(supported, merged, pages, self._own())
        return without_outvoted(merged, proposed, self._evidence), None

    def _weigh(self, cast: Sequence[Proposal]) -> dict[str, Evidence]:
        """Return what this step and those before hold for and against each experience."""
        step, asked = self._playing.row.plan.step, {p.sample_id for p in cast}
        store, branch = self._job.store, self._job.branch
        past = store.read(past_votes.past, branch, self._library, asked, end=step)
        named = [
            (p.sample_id, p.operation)
            for p in cast
            if p.operation.vote > 0 or self._was_shown(p, past)
        ]
        truth = self._job.teacher.truth
        return evidence_on(self._library, past, named, self._plays(), rewards=truth)

    def _was_shown(self, proposal: Proposal, past: Past) -> bool:
        """True when the group that proposes was played with what its target says now."""
        return proposal.operation.target in past.shown.get(
            self._playing.shown(proposal.slot).id, ()
        )

    def _plays(self) -> list[Play]:
        groups = [group for _, group in sorted(self._groups.items())]
        mean = mean_reward(groups, weight=self._playing.weight)
        found = list[Play]()
        for group in groups:
            row = self._row(group)
            if row.mean_reward is not None and mean is not None:
                shown = self._playing.shown(group.slot).id
                found.append(Play(row.sample_id, shown, row.mean_reward, row.scored, mean))
        return found

    def _pages(self, proposed: Sequence[Proposal]) -> list[Pages]:
        """Return what the group behind each proposal had read, as the merge was shown them."""
        read = {p.slot: read_in(self._groups[p.slot]) for p in proposed}
        return [read[p.slot] for p in proposed]

    def _behind(self, op: Operation, proposed: Sequence[Proposal]) -> list[int]:
        """Return the slots of the groups behind a merged operation; all where it does not say."""
        behind = [proposed[i].slot for i in op.from_ops if i < len(proposed)]
        return behind or list(self._groups)

    def _gives_away(self, op: Operation, slots: Sequence[int]) -> Quarantine | None:
        return self._guard.why_not(op.text or "", slots) if self._guard else None

    def _own(self) -> list[str]:
        """The texts of the step that are no page's."""
        teacher, library = self._job.teacher, self._library
        told = [teacher.instructions, teacher.agent_objective, teacher.learning_objective]
        asked = [group.sample.question for group in self._groups.values()]
        return [*filter(None, told), *asked, *(e.text for e in library.experiences)]

    def _at(self, slot: int = -1) -> GroupKey:
        plan = self._playing.row.plan
        return GroupKey(self._job.branch.id, plan.step, plan.epoch, slot)

    def _row(self, group: Group) -> GroupRow:
        return group_row(
            group,
            self._status(group),
            self._distilled.get(group.slot),
            planned=self._playing.row.attempts(group.slot),
            library_id=self._playing.shown(group.slot).id,
        )


def _said(error: StepError) -> str:
    return f"{type(error).__name__}: {error}"
