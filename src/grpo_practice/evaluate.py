"""Plays and scores every question of a dataset; a step is only an address here, never a barrier."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from grpo_practice.events import Emit, RolloutFinished
from grpo_practice.failure_limit import FailureLimit, Land
from grpo_practice.rollout import UNSCORED, AttemptKey, GroupJob, Player, play_groups
from grpo_practice.store import Store, datasets, rollouts
from grpo_practice.store.records import Branch, RolloutPrompt, StepRow
from grpo_practice.types import PlannedStep, Rollout, Verdict


def plan_eval(sample_ids: Sequence[int], *, batch_size: int, attempts: int) -> list[PlannedStep]:
    """Steps of `batch_size` questions in the dataset's order, each asked `attempts` times."""
    return [
        PlannedStep(
            step, 0, step, tuple((i, attempts) for i in sample_ids[start : start + batch_size])
        )
        for step, start in enumerate(range(0, len(sample_ids), batch_size))
    ]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation works with."""

    branch: Branch
    player: Player
    system: str
    library_id: int | None
    concurrency: int
    max_failed_share: float
    land: Land
    pilot: int | None = None
    """Ask only so many of the questions that are left, and close nothing."""
    limit: int | None = None
    """Ask none but the first so many of the plan."""


def unfinished(row: StepRow) -> bool:
    """True when something is left to do: never closed, or closed with failures to try again.

    That an older branch holds the step makes no difference: one line has one agent and one
    verify function, whatever branches it is made of.
    """
    return not row.closed or bool(row.stats and row.stats.get("failed"))


async def evaluate(job: Evaluation, store: Store, rows: Sequence[StepRow], emit: Emit) -> None:
    """Every rollout planned in `rows` has been played and scored, or has failed and says why.

    What is stored is used; failed rollouts are tried again. Steps whose rollouts another branch
    holds are only judged.

    Raises:
        RunFailedError: Too many rollouts failed.
        EndpointRefusedError: The endpoint refuses us.
    """
    planned = sum(islice((k for row in rows for _, k in row.plan.slots), job.limit))
    if job.pilot is not None:
        sizes = (k for row in rows if unfinished(row) for _, k in row.plan.slots)
        planned = sum(islice(sizes, job.pilot))
    work = _Work(
        job, store, emit, FailureLimit(job.branch.run, planned, job.max_failed_share, job.land)
    )
    jobs = islice(work.jobs(rows), job.pilot)
    await play_groups(jobs, work.play, concurrency=job.concurrency, on_group=work.finish)


@dataclass(slots=True)
class _Open:
    """A step under way."""

    row: StepRow
    left: int
    """Groups not finished yet."""
    stored: dict[tuple[int, int], tuple[int, Rollout]]
    failed: int = 0


@dataclass(slots=True)
class _Work:
    job: Evaluation
    store: Store
    emit: Emit
    watch: FailureLimit
    open: dict[int, _Open] = field(default_factory=dict)

    def jobs(self, rows: Sequence[StepRow]) -> Iterator[GroupJob]:
        """A job per question that has something left to do, read from the store step by step."""
        end = 0
        for row in rows:
            start, end = end, end + len(row.plan.slots)
            if not unfinished(row):
                continue
            samples = self.store.read(datasets.samples_of, row.plan)
            stored = self.store.read(rollouts.stored, self.job.branch, row, transcripts=False)
            self.open[row.plan.step] = _Open(row, len(samples), stored)
            for slot, (_, attempts) in enumerate(row.plan.slots):
                known = {a: stored[slot, a][1] for a in range(attempts) if (slot, a) in stored}
                for rollout in known.values():
                    if rollout.settled:
                        self.emit(RolloutFinished.of(row.plan.step, rollout, stored=True))
                complete = sum(rollout.settled for rollout in known.values()) == attempts
                if self.job.limit is not None and start + slot >= self.job.limit and not complete:
                    continue  # its step stays open
                yield GroupJob(
                    row.played_by or row.branch_id,
                    row.plan.step,
                    row.plan.epoch,
                    slot,
                    samples[slot],
                    attempts,
                    known,
                )

    async def play(self, place: AttemptKey) -> Rollout:
        """Play and score one attempt, or only score it where another branch played it."""
        step = self.open[place.step]
        if step.row.played_by is not None:
            rollout = await self._judge(step, place)
        else:
            rollout = await self.job.player.play(place, self.job.system)
            self._tell(step, rollout)  # before it is saved: who waits for that may be cancelled
            seed = self.job.player.scope(place).seed()
            told = RolloutPrompt(seed, self.job.system, self.job.library_id)
            await self.store.save_rollout(self.job.branch, place.step, rollout, told)
        await self.watch.see(rollout)
        return rollout

    async def _judge(self, step: _Open, place: AttemptKey) -> Rollout:
        """The verdict of this run's verify function on a rollout that is there already.

        Why there is none is on record too; the rollout itself stays as it was played.
        """
        rollout_id, rollout = step.stored[place.slot, place.attempt]
        judged = await self.job.player.score(rollout, self.job.player.scope(place))
        self._tell(step, judged)  # as above
        said: Verdict | str | None = judged.verdict
        if said is None and judged.played.reason in UNSCORED:
            said = f"{judged.played.reason}: {judged.played.error}"
        if said is not None:
            await self.store.save_verdict(self.job.branch, rollout_id, said)
        return judged

    def _tell(self, step: _Open, rollout: Rollout) -> None:
        self.emit(RolloutFinished.of(step.row.plan.step, rollout))

    async def finish(self, done: GroupJob) -> None:
        """Take a finished group in; the step is closed with its last one."""
        step = self.open[done.step]
        step.left -= 1
        step.failed += sum(r.verdict is None for r in done.done.values())
        if step.left == 0 and self.job.pilot is None:
            del self.open[done.step]
            stats = {"planned": step.row.plan.rollouts, "failed": step.failed}
            await self.store.close_eval(self.job.branch, done.step, stats)
