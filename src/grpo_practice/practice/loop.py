"""The loop: for each step play, distil, merge, and close in one transaction."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from grpo_practice.errors import StepError
from grpo_practice.events import (
    Emit,
    GroupDistilled,
    GroupFinished,
    RolloutFinished,
    StepFinished,
    StepStarted,
)
from grpo_practice.failures import FailureWatch, Land
from grpo_practice.metrics import correct
from grpo_practice.practice.distil import At, Teacher, distil
from grpo_practice.practice.informative import status_of
from grpo_practice.practice.lint import Lint, quarantine
from grpo_practice.practice.merge import apply, merge, proposals
from grpo_practice.prompts.system import system_prompt
from grpo_practice.rollout import GroupJob, Place, Player, play_groups, task_group
from grpo_practice.store import Store
from grpo_practice.store.records import Branch, GroupRow, StepResult, StepRow, Told
from grpo_practice.types import Distilled, Group, Library, Operation, PlannedStep, Rollout, Sample

AfterStep = Callable[[PlannedStep, Library], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Practice:
    """What a practice run works with."""

    branch: Branch
    player: Player
    teacher: Teacher
    instructions: str
    concurrency: int
    max_failed_share: float
    land: Land
    after_step: AfterStep
    """Awaited for every closed step, also for those an earlier invocation closed."""
    pilot: int | None = None
    """Play only so many groups of the next step, and close nothing."""


async def practise(job: Practice, store: Store, rows: Sequence[StepRow], emit: Emit) -> None:
    """Every step of `rows` is closed, in order; closed ones are only read.

    In a pilot, the first groups of the next step are played and distilled, and that is all.

    Raises:
        RunFailedError: Too many rollouts of a step failed.
        EndpointRefusedError: The endpoint refuses us.
    """
    library_id = job.branch.library.id
    for row in rows:
        if row.closed:
            library_id = row.library_out or library_id
        else:
            library = store.library(library_id)
            samples = store.samples_of(row.plan)
            lint = Lint(sample.answer for sample in samples)
            step = _Step(job, store, emit, row, library, samples, lint)
            if job.pilot is not None:
                await step.open(job.pilot)
                return
            library_id = await step.run()
        if job.pilot is None:
            await job.after_step(row.plan, store.library(library_id))


@dataclass(slots=True)
class _Step:
    """One step under way: its groups as they finish, and what they teach."""

    job: Practice
    store: Store
    emit: Emit
    row: StepRow
    library: Library
    samples: Sequence[Sample]
    """Index = slot."""
    lint: Lint
    """What is proposed and what is merged has to pass it."""
    groups: dict[int, Group] = field(default_factory=dict)
    distilled: dict[int, Distilled] = field(default_factory=dict)

    @property
    def plan(self) -> PlannedStep:
        """What the step plays."""
        return self.row.plan

    async def open(self, groups: int | None = None) -> None:
        """Play and distil its groups, or only the first ones."""
        plan, size = self.plan, len(self.library)
        await self.store.open_step(self.job.branch, plan.step, self.library.id)
        jobs = self._jobs()
        there = [r for job in jobs for r in job.stored.values() if r.settled]
        self.emit(
            StepStarted(plan.step, plan.epoch, len(plan.slots), plan.rollouts, size, len(there))
        )
        for rollout in there:
            self.emit(RolloutFinished.of(plan.step, rollout, stored=True))
        await self._play_and_distil(jobs[:groups])

    async def run(self) -> int:
        """Play, distil, merge, close; the id of the next library."""
        branch, step = self.job.branch, self.plan.step
        await self.open()
        merged, failed = await self._merge()
        library = apply(self.library, merged)
        rows = [self._group_row(slot, group) for slot, group in sorted(self.groups.items())]
        result = StepResult(
            groups=rows,
            distilled=[d for _, d in sorted(self.distilled.items())],
            merged=merged,
            library=library,
            stats=self._stats(rows, library)
            | {"quarantined": self._quarantined(merged), "merge_failed": failed},
            failed=failed,
        )
        library_id = await self.store.close_practice(branch, step, result)
        informative = sum(row.informative for row in rows)
        mean = result.stats["mean_reward"]
        self.emit(StepFinished(step, mean, informative, len(library), failed))
        return library_id

    async def _play_and_distil(self, jobs: Sequence[GroupJob]) -> None:
        """Each group is distilled as soon as its last rollout is scored: no barrier between."""
        system = system_prompt(self.job.instructions, self.library)
        what = f"step {self.plan.step}"
        planned = sum(job.attempts for job in jobs)
        watch = FailureWatch(what, planned, self.job.max_failed_share, self.job.land)
        async with task_group() as tasks:

            async def on_group(done: GroupJob) -> None:
                group = self.groups[done.slot] = done.group
                informative = status_of(group, truth=self.job.teacher.truth) == "scored"
                self.emit(GroupFinished(self.plan.step, done.slot, informative))
                if informative:
                    tasks.create_task(self._distil(group))

            await play_groups(
                jobs,
                partial(self._play, system=system, watch=watch),
                concurrency=self.job.concurrency,
                on_group=on_group,
            )

    def _jobs(self) -> list[GroupJob]:
        """A job per slot, with what is stored of it."""
        branch, plan = self.job.branch, self.plan
        stored = self.store.stored(branch, self.row, self.samples, transcripts=True)
        return [
            GroupJob(
                branch.id,
                plan.step,
                plan.epoch,
                slot,
                self.samples[slot],
                attempts,
                {a: stored[slot, a][1] for a in range(attempts) if (slot, a) in stored},
            )
            for slot, (_, attempts) in enumerate(plan.slots)
        ]

    async def _play(self, place: Place, *, system: str, watch: FailureWatch) -> Rollout:
        player = self.job.player
        rollout = await player.play(place, system)
        told = Told(player.scope(place).seed(), system, self.library.id)
        await self.store.save_rollout(self.job.branch, place.step, rollout, told)
        self.emit(RolloutFinished.of(place.step, rollout))
        await watch.see(rollout)
        return rollout

    async def _distil(self, group: Group) -> None:
        at = At(self.job.branch.id, self.plan.step, self.plan.epoch, group.slot)
        done = await distil(self.job.teacher, group, self.library, at)
        done = replace(done, operations=quarantine(done.operations, self.lint))
        self.distilled[group.slot] = done
        self.emit(
            GroupDistilled(
                at.step, group.slot, len(done.lessons), len(done.operations), done.failed
            )
        )

    async def _merge(self) -> tuple[tuple[Operation, ...], str | None]:
        """The merged operations, or none and why the merge failed."""
        at = At(self.job.branch.id, self.plan.step, self.plan.epoch)
        proposed = proposals(self.distilled.values())
        try:
            merged = await merge(self.job.teacher, self.library, proposed, at)
        except StepError as e:
            return (), f"{type(e).__name__}: {e}"
        return quarantine(merged, self.lint), None

    def _group_row(self, slot: int, group: Group) -> GroupRow:
        rewards = [r.reward for r in group.rollouts if r.reward is not None]
        status = status_of(group, truth=self.job.teacher.truth)
        done = self.distilled.get(slot)
        return GroupRow(
            slot=slot,
            sample_id=group.sample.id,
            planned=self.plan.slots[slot][1],
            played=sum(r.played.outcome != "error" for r in group.rollouts),
            scored=len(rewards),
            teachable=len(group.teachable),
            mean_reward=sum(rewards) / len(rewards) if rewards else None,
            informative=status == "scored",
            status=("failed" if done.failed else "distilled") if done else status,
            reason=done.failed if done else None,
        )

    def _quarantined(self, merged: Sequence[Operation]) -> int:
        proposed = [op for done in self.distilled.values() for op in done.operations]
        return sum(op.quarantined for op in [*proposed, *merged])

    def _stats(self, rows: Sequence[GroupRow], library: Library) -> dict[str, object]:
        """What lists and summaries say of the step without reading its rollouts again."""
        rollouts = [r for g in self.groups.values() for r in g.rollouts]
        rewards = [r.reward for r in rollouts if r.reward is not None]
        return {
            "planned": self.plan.rollouts,
            "scored": len(rewards),
            "correct": sum(correct(r) for r in rewards),
            "mean_reward": sum(rewards) / len(rewards) if rewards else None,
            "outcomes": dict(sorted(Counter(_outcome(r) for r in rollouts).items())),
            "groups": dict(sorted(Counter(row.status for row in rows).items())),
            "informative": sum(row.informative for row in rows),
            "experiences": len(library),
        }


def _outcome(rollout: Rollout) -> str:
    """`ok`, `truncated`, …; with the reason for `limit` and `error`: `error.provider`."""
    played = rollout.played
    return f"{played.outcome}.{played.reason}" if played.reason else played.outcome
