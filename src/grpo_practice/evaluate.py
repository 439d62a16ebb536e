"""Plays and scores every question of a dataset; a step is only an address here, no barrier."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from grpo_practice.attempts import Attempts
from grpo_practice.events import Emit
from grpo_practice.failure_limit import FailureLimit, Land
from grpo_practice.rollout import AttemptKey, GroupJob, Player, play_groups
from grpo_practice.store import Store, datasets, rollouts
from grpo_practice.store.records import Branch, StepRow
from grpo_practice.types import Library, PlannedStep, Rollout


def plan_eval(sample_ids: Sequence[int], *, batch_size: int, attempts: int) -> list[PlannedStep]:
    """Plan steps of `batch_size` questions in the dataset's order, each asked `attempts` times."""
    return [
        PlannedStep(
            step, 0, step, tuple((i, attempts) for i in sample_ids[start : start + batch_size])
        )
        for step, start in enumerate(range(0, len(sample_ids), batch_size))
    ]


def unasked(plan: PlannedStep, samples: Collection[int]) -> PlannedStep:
    """Return the step with no attempts for these samples; every slot stays where it is."""
    slots = tuple((i, 0 if i in samples else attempts) for i, attempts in plan.slots)
    return replace(plan, slots=slots)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The parts that an evaluation works with."""

    branch: Branch
    player: Player
    system: str
    library: Library
    """The library behind the system prompt; an empty one where there is none."""
    concurrency: int
    max_failed_share: float
    land: Land
    pilot: int | None = None
    """Number of the questions that are left to ask, with no step closed; None asks all."""
    limit: int | None = None
    """Number of questions of the plan to ask; None asks all."""


def unfinished(row: StepRow) -> bool:
    """Return True when something is left to do: never closed, or closed with failures to retry.

    A step that an older branch holds is no exception: all branches of a line have one agent and
    one verify function.
    """
    return not row.closed or bool(row.stats and row.stats.get("failed"))


async def evaluate(job: Evaluation, store: Store, rows: Sequence[StepRow], emit: Emit) -> None:
    """Play and score every rollout planned in `rows`, or save why it failed.

    Settled rollouts are used as they are stored; failed ones are tried again. Steps whose rollouts
    another branch holds are only scored.

    Raises:
        RunFailedError: Too many rollouts failed.
        EndpointRefusedError: The endpoint refuses us.
    """
    planned = sum([k for row in rows for _, k in row.plan.slots][: job.limit])
    if job.pilot is not None:
        sizes = (k for row in rows if unfinished(row) for _, k in row.plan.slots if k)
        planned = sum(islice(sizes, job.pilot))
    limit = FailureLimit(job.branch.run, planned, job.max_failed_share, job.land)
    work = _Work(job, store, Attempts(job.branch, store, emit, limit))
    left = work.jobs(rows)
    jobs = left if job.pilot is None else islice((j for j in left if j.attempts), job.pilot)
    await play_groups(jobs, work.play, concurrency=job.concurrency, on_group=work.finish)


@dataclass(slots=True)
class _OpenStep:
    """A step under way."""

    row: StepRow
    left: int
    """Number of groups that are not finished."""
    stored: dict[tuple[int, int], tuple[int, Rollout]]
    """(slot, attempt) → id and rollout."""
    failed: int = 0


@dataclass(slots=True)
class _Work:
    job: Evaluation
    store: Store
    attempts: Attempts
    open: dict[int, _OpenStep] = field(default_factory=dict)

    def jobs(self, rows: Sequence[StepRow]) -> Iterator[GroupJob]:
        """Yield a job per question that has something left to do, read step by step."""
        end = 0
        for row in rows:
            start, end = end, end + len(row.plan.slots)
            if not unfinished(row):
                continue
            samples = self.store.read(datasets.samples_of, row.plan)
            stored = self.store.read(rollouts.stored, self.job.branch, row, transcripts=False)
            self.open[row.plan.step] = _OpenStep(row, len(samples), stored)
            for slot, (_, attempts) in enumerate(row.plan.slots):
                known = {a: stored[slot, a][1] for a in range(attempts) if (slot, a) in stored}
                settled = [rollout for rollout in known.values() if rollout.settled]
                for rollout in settled:
                    self.attempts.report_stored(row.plan.step, rollout)
                beyond = self.job.limit is not None and start + slot >= self.job.limit
                if beyond and len(settled) < attempts:
                    continue  # one group is left, so its step stays open
                yield GroupJob(
                    row.played_by or row.branch_id,
                    row.plan.step,
                    row.plan.epoch,
                    slot,
                    samples[slot],
                    attempts,
                    known,
                )

    async def play(self, key: AttemptKey) -> Rollout:
        """Play and score one attempt, or only score it where another branch played it."""
        step, player = self.open[key.step], self.job.player
        if step.row.played_by is None:
            return await self.attempts.play(key, player, self.job.system, self.job.library)
        rollout_id, rollout = step.stored[key.slot, key.attempt]
        return await self.attempts.score_again(key, player, rollout_id, rollout)

    async def finish(self, done: GroupJob) -> None:
        """Count a finished group; close its step with the last one."""
        step = self.open[done.step]
        step.left -= 1
        step.failed += sum(r.verdict is None for r in done.done.values())
        if step.left == 0 and self.job.pilot is None:
            # Frees what is stored of the step: all of a long evaluation would stay in memory.
            del self.open[done.step]
            stats = {"planned": step.row.plan.rollouts, "failed": step.failed}
            await self.store.close_eval(self.job.branch, done.step, stats)
