"""Plays and scores every question of a dataset; a step is only an address here, not a barrier."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice, zip_longest
from random import Random
from typing import Self

from grpo_practice.core.events import Emit, GroupStored
from grpo_practice.core.types import PlannedStep, Rollout
from grpo_practice.rollout.attempts import Attempts, SystemCheck, SystemPrompt
from grpo_practice.rollout.failure_limit import Drain, FailureLimit
from grpo_practice.rollout.play import AttemptKey, GroupJob, Player, play_groups
from grpo_practice.store import Store, datasets, rollouts
from grpo_practice.store.records import Branch, StepRow


def grown(stored: Sequence[PlannedStep], wanted: Sequence[PlannedStep]) -> list[PlannedStep]:
    """Return the steps of both plans, with all questions and the larger number of attempts."""
    have = {plan.step: plan for plan in stored}
    steps = have | {plan.step: plan for plan in wanted}
    for step in have.keys() & {plan.step for plan in wanted}:
        # The shorter plan is padded with a slot that is less than every slot of the longer one.
        both = zip_longest(have[step].slots, steps[step].slots, fillvalue=(0, 0))
        slots = tuple(max(pair) for pair in both)  # same sample, so this compares attempts
        steps[step] = replace(have[step], slots=slots)
    return list(steps.values())


def plan_eval(sample_ids: Sequence[int], *, batch_size: int, attempts: int) -> list[PlannedStep]:
    """Plan steps of `batch_size` questions in the dataset's order, with `attempts` per question."""
    return [
        PlannedStep(
            step, 0, step, tuple((i, attempts) for i in sample_ids[start : start + batch_size])
        )
        for step, start in enumerate(range(0, len(sample_ids), batch_size))
    ]


def unasked(plan: PlannedStep, samples: Collection[int]) -> PlannedStep:
    """Return the step with 0 attempts at these samples; all slots keep their positions."""
    slots = tuple((i, 0 if i in samples else attempts) for i, attempts in plan.slots)
    return replace(plan, slots=slots)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation and the components that it uses."""

    branch: Branch
    rows: Sequence[StepRow]
    """Steps, in order."""
    player: Player
    prompt: Callable[[AttemptKey], SystemPrompt]
    """Function that returns the system prompt of an attempt."""
    emit: Emit
    max_failed_share: float
    drain: Drain
    check: SystemCheck | None = None
    """Check of the agent's requests; None if the agent may omit its system prompt."""
    pilot: int | None = None
    """Number of remaining questions to ask without closing a step; None asks all of them."""
    limit: int | None = None
    """Number of the plan's questions to ask; None asks all of them."""


def unfinished(row: StepRow) -> bool:
    """Return True if the step was never closed, or was closed with failures to retry.

    This also holds for a step of an older branch: all branches of a line have the same agent and
    verify function.
    """
    return not row.closed or bool(row.stats and row.stats.get("failed"))


async def evaluate(
    jobs: Sequence[Evaluation], store: Store, *, concurrency: int, seed: int
) -> None:
    """Play and score every rollout that the evaluations plan, or save why it failed.

    Settled rollouts are used as stored; failed rollouts are retried. If the rollouts of a step
    belong to another branch, they are only scored. Several evaluations are interleaved question by
    question, so that a change at the endpoint affects all of them.

    Raises:
        RunFailedError: Too many rollouts of one evaluation failed.
        EndpointRefusedError: The endpoint refuses our requests.
    """
    works = [_Work.of(job, store) for job in jobs]
    of_branch = dict[int, _Work]()

    def groups() -> Iterator[GroupJob]:
        for work, group in _in_turns(works, seed):
            of_branch[group.branch_id] = work
            yield group

    await play_groups(
        groups(),
        lambda key: of_branch[key.branch_id].play_or_score(key),
        concurrency=concurrency,
        on_group=lambda group: of_branch[group.branch_id].finish(group),
    )


def _in_turns(works: "Sequence[_Work]", seed: int) -> "Iterator[tuple[_Work, GroupJob]]":
    """Yield the remaining groups step by step; each step is read only when it is needed.

    Groups from several evaluations are interleaved question by question. The order of the
    questions, and of the evaluations for each question, is random but determined by the seed.
    """
    for step in sorted({step for work in works for step in work.rows}):
        left = [(work, group) for work in works for group in work.groups(step)]
        if len(works) > 1:
            order = Random(f"{seed}|{step}")
            place = {group.sample.sha: order.random() for _, group in left}
            order.shuffle(left)
            # Sorting is stable: the evaluations of a question come together, in shuffled order.
            left.sort(key=lambda pair: place[pair[1].sample.sha])
        yield from left


@dataclass(slots=True)
class _OpenStep:
    """A step in progress."""

    row: StepRow
    left: int
    """Number of unfinished groups."""
    stored: dict[tuple[int, int], tuple[int, Rollout]]
    """(slot, attempt) → id and rollout."""
    failed: int = 0


@dataclass(slots=True)
class _Work:
    """An evaluation in progress."""

    job: Evaluation
    store: Store
    attempts: Attempts
    pilot: int | None
    """Number of questions that a pilot has yet to ask; None without a pilot."""
    rows: dict[int, tuple[StepRow, int]]
    """Step → its row, and the index of its first question in the plan."""
    open: dict[int, _OpenStep] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Evaluation, store: Store) -> Self:
        """Return the work of an evaluation before anything is played."""
        sizes = [k for row in job.rows for _, k in row.plan.slots][: job.limit]
        if job.pilot is not None:
            left = (k for row in job.rows if unfinished(row) for _, k in row.plan.slots if k)
            sizes = list(islice(left, job.pilot))
        limit = FailureLimit(job.branch.run, sum(sizes), job.max_failed_share, job.drain)
        ends = accumulate(len(row.plan.slots) for row in job.rows)
        rows = {
            row.plan.step: (row, end - len(row.plan.slots))
            for row, end in zip(job.rows, ends, strict=True)
        }
        attempts = Attempts(job.branch, store, job.emit, limit, job.check)
        return cls(job, store, attempts, job.pilot, rows)

    def groups(self, step: int) -> Iterator[GroupJob]:
        """Yield one job for each question of the step that is not finished."""
        row, first = self.rows.get(step, (None, 0))
        if row is None or not unfinished(row):
            return
        samples = self.store.read(datasets.samples_of, row.plan)
        stored = self.store.read(rollouts.stored, self.job.branch, row, transcripts=False)
        # Before the first job is yielded, since `play` and `finish` look the step up.
        self.open[step] = _OpenStep(row, len(samples), stored)
        for slot, (_, attempts) in enumerate(row.plan.slots):
            known = {a: stored[slot, a][1] for a in range(attempts) if (slot, a) in stored}
            settled = [rollout for rollout in known.values() if rollout.settled]
            for rollout in settled:
                self.attempts.report_stored(step, rollout)
            beyond = self.job.limit is not None and first + slot >= self.job.limit
            if beyond and len(settled) < attempts:
                continue  # the group stays unfinished, so its step stays open
            if self.pilot is not None:
                if self.pilot == 0:
                    return
                self.pilot -= bool(attempts)
            branch_id, epoch = row.played_by or row.branch_id, row.plan.epoch
            yield GroupJob(branch_id, step, epoch, slot, samples[slot], attempts, known)

    async def play_or_score(self, key: AttemptKey) -> Rollout:
        """Play and score one attempt; if another branch played it, only score it."""
        step, player = self.open[key.step], self.job.player
        if step.row.played_by is None:
            return await self.attempts.play_attempt(key, player, self.job.prompt(key))
        rollout_id, rollout = step.stored[key.slot, key.attempt]
        return await self.attempts.score_again(key, player, rollout_id, rollout)

    async def finish(self, done: GroupJob) -> None:
        """Count a finished group; close the step after its last group."""
        step = self.open[done.step]
        step.left -= 1
        step.failed += sum(r.verdict is None for r in done.done.values())
        self.job.emit(GroupStored(self.job.branch.run, done.step, done.slot))
        if step.left == 0 and self.job.pilot is None:
            # Free the step's rollouts: otherwise a long evaluation would stay in memory.
            del self.open[done.step]
            stats = {"planned": step.row.plan.rollouts, "failed": step.failed}
            await self.store.close_eval(self.job.branch, done.step, stats)
