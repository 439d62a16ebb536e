"""Plays the groups of a step; some may begin early."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from grpo_practice.core.events import StepStarted
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.core.types import Group, Library, Rollout, Sample
from grpo_practice.practice.context import Practice
from grpo_practice.practice.trials import left_out
from grpo_practice.rollout.attempts import Attempts, SystemPrompt
from grpo_practice.rollout.failure_limit import FailureLimit
from grpo_practice.rollout.play import AttemptKey, GroupJob, begin, play_groups
from grpo_practice.store import rollouts
from grpo_practice.store.records import StepRow


class StepRollouts:
    """The groups of one step; each is passed on as soon as its last attempt is scored.

    Early groups may be played before the step is opened, while the previous step is being finished.
    Their prompt always contains the library that the previous step started from.

    Args:
        job: The run.
        tasks: Task group of the playing tasks; an error in one of them ends the run.
        row: The step as stored.
        samples: The samples of the step. Index = slot.
        before: Library of the previous step; None for the first step, which has no early groups.
        on_group: Called with each group whose attempts have all ended; for an early group, this
            may be before `open`.
    """

    def __init__(
        self,
        job: Practice,
        tasks: asyncio.TaskGroup,
        row: StepRow,
        samples: Sequence[Sample],
        before: Library | None,
        on_group: Callable[[Group], None],
    ) -> None:
        self._job, self._tasks, self._samples = job, tasks, samples
        self._before, self._on_group = before, on_group
        self.row = row
        self._early = 0 if before is None else job.early(len(samples))
        self._library: Library | None = None
        """Library that all but the early groups are played with; None until the step is opened."""
        self._trial: Sequence[str] = ()
        self._systems = dict[tuple[int, frozenset[str]], SystemPrompt]()
        self._stored: Mapping[tuple[int, int], tuple[int, Rollout]] = {}
        """Recorded attempts by slot and number, each with the ID of its row."""
        self._jobs = self._group_jobs()
        self._begun = set[int]()
        """Slots of the early groups that began before the step was opened."""
        self._may_begin_early = True
        self._ended = {group.slot: asyncio.Event() for group in self._jobs}
        self._limit = FailureLimit(
            f"step {row.plan.step}",
            sum(group.attempts for group in self._jobs),
            job.settings.max_failed_share,
            job.drain,
            row.plan.step,
        )
        self._attempts = Attempts(job.branch, job.store, job.emit, self._limit, job.check)

    def library_of(self, slot: int) -> Library:
        """Return the library that a group is played with."""
        if self._job.recorded is not None:
            return self._job.recorded
        # Decide by slot, even if there was no time to begin early, because the library that a group
        # is played with must follow from the plan, not from timing.
        library = self._before if slot < self._early else self._library
        assert library is not None, "only early groups are played before the step is opened"
        return library

    def left_out(self, slot: int, attempt: int) -> frozenset[str]:
        """Return the experiences on trial that an attempt is not shown."""
        # An early group may begin before the step knows what is on trial.
        if slot < self._early or self._job.recorded is not None:
            return frozenset()
        plan = self.row.plan
        place = (plan.step, slot, attempt)
        return left_out(self._trial, self._job.settings.seed, place, plan.slots[slot][1])

    def shown(self, slot: int, attempt: int) -> Library:
        """Return the library as an attempt is shown it."""
        library, gone = self.library_of(slot), self.left_out(slot, attempt)
        kept = tuple(e for e in library.experiences if e.id not in gone)
        return replace(library, experiences=kept)

    async def open(self, library: Library, trial: Sequence[str]) -> None:
        """Record that the step is open, with these experiences of its library on trial."""
        job, plan = self._job, self.row.plan
        stored = [r for group in self._jobs for r in group.stored.values() if r.settled]
        job.emit(
            StepStarted(
                plan.step,
                plan.epoch,
                groups=len(self._jobs),
                rollouts=plan.rollouts,
                experiences=len(library),
                done=len(stored),
            )
        )
        for rollout in stored:
            self._attempts.report_stored(plan.step, rollout)
        await job.store.open_step(job.branch, plan.step, library.id)
        self._library, self._trial, self._may_begin_early = library, trial, False

    async def play_step(
        self, *, ahead: "StepRollouts | None" = None, most: int | None = None
    ) -> None:
        """Play all groups, or only the first `most` of them, and wait until they have ended.

        When a worker has no more groups to start in this step, it begins the early groups of the
        step `ahead`; these may still be running when this method returns.
        """
        groups = self._jobs[:most]
        self._limit.planned = sum(group.attempts for group in groups)
        steps = {one.row.plan.step: one for one in (self, ahead) if one}
        # Skip the early groups that are already in progress, because they would be played and paid
        # for twice.
        own = [group for group in groups if group.slot not in self._begun]
        # Not awaited, because it may still be playing early groups of the next step when these have
        # ended.
        begin(
            self._tasks,
            play_groups(
                # A lazy iterator, so that an early group begins only when no other is left to
                # start here.
                chain(own, ahead._early_jobs() if ahead else ()),
                lambda key: steps[key.step]._attempt(key),
                concurrency=self._job.settings.rollout_concurrency,
                on_group=lambda group: steps[group.step]._group_ended(group),
            ),
        )
        for group in groups:
            await self._ended[group.slot].wait()

    def hold_early_groups(self) -> None:
        """Start no more early groups until the step is opened."""
        self._may_begin_early = False

    def _early_jobs(self) -> Iterator[GroupJob]:
        for group in self._jobs[: self._early]:
            # It may change between two groups, so read it for each.
            if not self._may_begin_early:
                return
            self._begun.add(group.slot)
            yield group

    async def _attempt(self, key: AttemptKey) -> Rollout:
        # Before the step is opened, nothing waits for this attempt, so its requests have lower
        # priority.
        player = self._job.later if self._library is None else self._job.player
        if self._job.recorded is not None:
            stored = self._stored[key.slot, key.attempt]
            return await self._attempts.score_again(key, player, *stored)
        library, gone = self.library_of(key.slot), self.left_out(key.slot, key.attempt)
        system = self._systems.get((library.id, gone))
        if system is None:
            text = system_prompt(self._job.teacher.instructions, self.shown(key.slot, key.attempt))
            system = SystemPrompt(text, library, tuple(sorted(gone)))
            self._systems[library.id, gone] = system
        return await self._attempts.play_attempt(key, player, system)

    async def _group_ended(self, group: GroupJob) -> None:
        # Call this before setting the event, because the waiting task reads the groups.
        self._on_group(group.group)
        self._ended[group.slot].set()

    def _group_jobs(self) -> list[GroupJob]:
        branch, plan = self._job.branch, self.row.plan
        stored = self._job.store.read(rollouts.stored, branch, self.row, transcripts=True)
        self._stored = stored if self._job.recorded is not None else {}
        return [
            GroupJob(
                branch.id,
                plan.step,
                plan.epoch,
                slot,
                self._samples[slot],
                most,
                {a: stored[slot, a][1] for a in range(most) if (slot, a) in stored},
            )
            for slot, (_, most) in enumerate(plan.slots)
        ]
