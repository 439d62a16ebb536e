"""Plays the groups of a step, some before its turn, or not at all where that is wanted."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from grpo_practice.events import RolloutFinished, StepStarted
from grpo_practice.failure_limit import FailureLimit
from grpo_practice.practice.context import Practice
from grpo_practice.practice.group_policy import AGAIN, played_again
from grpo_practice.prompts.system import system_prompt
from grpo_practice.rollout import AttemptKey, GroupJob, play_groups
from grpo_practice.store import rollouts
from grpo_practice.store.records import RolloutPrompt, StepRow
from grpo_practice.store.steps import uniform
from grpo_practice.types import Group, Library, Rollout, Sample


class Playing:
    """The groups of one step: each is handed on when its last attempt is scored.

    Its early groups may be played before the step is opened, while the one before is finished.
    They are played with the library of that one, also when there was no time to begin them early:
    what is played with what follows from the plan. Of what is played early nothing is told, and
    no group handed on, until the step is opened.

    Args:
        job: The run.
        tasks: Where those who play are at home: what fails there ends all of it.
        row: The step as it stands.
        samples: What it plays. Index = slot.
        before: The library of the step before; None for the first one, which has no early groups.
        on_group: Takes a group whose attempts have all ended.
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
        self._job, self._tasks = job, tasks
        self._before, self._on_group = before, on_group
        self.row = row
        self._early = 0 if before is None else int(job.overlap * len(samples) + 1e-9)
        self._library: Library | None = None
        """What its other groups are played with; None until it is opened."""
        self._systems = dict[int, str]()
        self._jobs = self._stored(samples)
        """Without the groups that are left out, once it is opened."""
        self._doubtful = frozenset[int]()
        """Slots of the groups that might be left out, or are; known once it is opened."""
        self._begun = set[int]()
        """Slots of the early groups that were begun before the step was opened."""
        self._ahead = True
        """Whether further ones may be begun."""
        self._ended = {group.slot: asyncio.Event() for group in self._jobs}
        """Set when a group's attempts have ended."""
        self._held = list[Callable[[], None]]()
        """What is to be told once it is opened."""
        what = f"step {row.plan.step}"
        planned = sum(group.attempts for group in self._jobs)
        self._watch = FailureLimit(what, planned, job.max_failed_share, job.land, row.plan.step)

    def shown(self, slot: int) -> Library:
        """The library that a group is played with."""
        library = self._before if slot < self._early else self._library
        assert library is not None, "only early groups are played before the step is opened"
        return library

    def weight(self, slot: int) -> float:
        """How often the group counts in a mean: also for those like it that are left out."""
        return 1 / AGAIN if slot in self._doubtful else 1.0

    async def open(self, library: Library) -> None:
        """The step is under way; what was held back is told, and handed on."""
        plan, planned = self.row.plan, self.row.rollouts
        if self._job.skip_uniform:
            self._leave_out()
        there = [r for group in self._jobs for r in group.stored.values() if r.settled]
        self._job.emit(
            StepStarted(
                plan.step,
                plan.epoch,
                groups=len(self._jobs),
                rollouts=self.row.rollouts,
                experiences=len(library),
                done=len(there),
                spared=planned - self.row.rollouts,
            )
        )
        for rollout in there:
            self._job.emit(self._finished(rollout, stored=True))
        await self._job.store.open_step(self._job.branch, plan.step, library.id, self.row.left_out)
        self._library, self._ahead = library, False
        for tell in self._held:
            tell()

    async def play(self, *, ahead: "Playing | None" = None, most: int | None = None) -> None:
        """Every group has been handed on, or the first ones of them.

        Args:
            ahead: The next step. Who has nothing left to start here begins its early groups,
                and may not have finished them yet.
            most: How many groups; None plays all.
        """
        groups = self._jobs[:most]
        self._watch.planned = sum(group.attempts for group in groups)
        steps = {playing.row.plan.step: playing for playing in (self, ahead) if playing}
        own = [group for group in groups if group.slot not in self._begun]
        self._tasks.create_task(
            play_groups(
                chain(own, ahead.early() if ahead else ()),
                lambda place: steps[place.step]._attempt(place),
                concurrency=self._job.concurrency,
                on_group=lambda group: steps[group.step]._group_ended(group),
            )
        )
        for group in groups:
            await self._ended[group.slot].wait()

    def early(self) -> Iterator[GroupJob]:
        """Yield each early group when it is asked for; none once the step may not run ahead."""
        for group in self._jobs[: self._early]:
            if not self._ahead:
                return
            self._begun.add(group.slot)
            yield group

    def wait(self) -> None:
        """Begin no other group until the step is opened."""
        self._ahead = False

    async def _attempt(self, place: AttemptKey) -> Rollout:
        player = self._job.later if self._library is None else self._job.player
        library = self.shown(place.slot)
        system = self._systems.get(library.id)
        if system is None:
            system = self._systems[library.id] = system_prompt(
                self._job.teacher.instructions, library
            )
        rollout = await player.play(place, system)
        told = RolloutPrompt(player.scope(place).seed(), system, library.id)
        # Before it is saved: who waits for that may be cancelled.
        self._tell(partial(self._job.emit, self._finished(rollout)))
        await self._job.store.save_rollout(self._job.branch, place.step, rollout, told)
        await self._watch.see(rollout)
        return rollout

    async def _group_ended(self, group: GroupJob) -> None:
        self._tell(partial(self._on_group, group.group))
        self._ended[group.slot].set()

    def _tell(self, what: Callable[[], None]) -> None:
        if self._library is None:
            self._held.append(what)
        else:
            what()

    def _leave_out(self) -> None:
        """It is decided which groups are left out.

        By closed steps alone, whose groups never change: whoever goes on with the run finds the
        same.
        """
        plan, seed = self.row.plan, self._job.player.run_seed
        taught_nothing = self._job.store.read(uniform, self._job.branch, plan)
        doubtful = [g for g in self._jobs if g.sample.id in taught_nothing]
        self._doubtful = frozenset(group.slot for group in doubtful)
        if self.row.left_out is None:
            left = (g.slot for g in doubtful if not played_again(g.sample, plan.epoch, seed))
            self.row = replace(self.row, left_out=frozenset(left))
        self._jobs = [group for group in self._jobs if self.row.attempts(group.slot)]

    def _finished(self, rollout: Rollout, *, stored: bool = False) -> RolloutFinished:
        weight = self.weight(rollout.slot)
        return RolloutFinished.of(self.row.plan.step, rollout, stored=stored, weight=weight)

    def _stored(self, samples: Sequence[Sample]) -> list[GroupJob]:
        """What there is to play in each slot, with what is stored of it."""
        branch, plan = self._job.branch, self.row.plan
        stored = self._job.store.read(rollouts.stored, branch, self.row, transcripts=True)
        return [
            GroupJob(
                branch.id,
                plan.step,
                plan.epoch,
                slot,
                samples[slot],
                self.row.attempts(slot),
                {a: stored[slot, a][1] for a in range(most) if (slot, a) in stored},
            )
            for slot, (_, most) in enumerate(plan.slots)
        ]
