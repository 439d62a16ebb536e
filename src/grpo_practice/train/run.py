"""Run a training job: steps, checkpoints, evaluations, report."""

import asyncio
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from grpo_practice.core.errors import GrpoPracticeError, RunFailedError
from grpo_practice.core.events import RunStarted
from grpo_practice.reports.training import TrainReport, scored_steps, train_report
from grpo_practice.rollout.play import Player
from grpo_practice.run.driver import playing
from grpo_practice.run.session import OpenRun, StepStop
from grpo_practice.run.waiting import SIGNALS, rare_collections
from grpo_practice.store import datasets
from grpo_practice.store.records import CheckpointRow, StepRow
from grpo_practice.train.checks import check_disk, check_installed, steps_planned
from grpo_practice.train.gather import Ranks
from grpo_practice.train.job import TrainJob, checkpoints_folder, plan_of, planned
from grpo_practice.train.recipe import settings_of
from grpo_practice.train.resume import StartingPoint, checked_folder, start_of
from grpo_practice.train.scoring import OnLoop, answers_to, scoring, selected
from grpo_practice.train.steps import TrainingRun
from grpo_practice.train.trainer import (
    OtherRankFailedError,
    dismiss,
    help_train,
    is_out_of_memory,
    train,
    update_seed,
)
from grpo_practice.train.work import MAKING, evaluates


def help_if_not_first() -> bool:
    """Take part in training led by another process and return True; return False if this one leads.

    A helping process ignores signals. Only the first process handles them, so that all processes
    stop after the same step.
    """
    ranks = Ranks.of_environment()
    if ranks.first:
        return False
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    check_installed()
    try:
        with rare_collections():
            help_train(ranks)
    except OtherRankFailedError as e:
        raise RunFailedError("the first process failed; its output gives the reason") from e
    return True


async def run_train(job: TrainJob) -> TrainReport:
    """Train until the plan is complete, and return the report.

    Raises:
        FingerprintError: The run was begun with a different configuration.
        RunFailedError: The loss became NaN, memory ran out, or no group taught anything.
        StoppedError: A signal stopped the run after a step, with a checkpoint.
    """
    spec = job.spec
    total = len(steps_planned(job.config, job.sample_ids))
    start = start_of(job.session, spec, total=total, origin=job.origin)
    session = start.session
    room = session.store.path.resolve().parent
    # Check now: a full disk hours later would lose the steps since the last checkpoint.
    check_disk(job.config, job.model, range(start.step, total), room, every=job.every)
    async with playing(session, [job], planned, _begun) as (run,):
        store = session.store
        rows = run.rows
        left = [row for row in rows if not row.closed]
        # The other ranks wait for work and would otherwise never exit.
        if not left:
            dismiss(job.ranks)
        else:
            session.announce()
        missed = _missed(job, start, len(rows))
        if left or missed:
            async with scoring(job, run) as player:
                if missed:
                    await _evaluate(job, player, missed)
                if left:
                    await _work(job, run, rows, start, player)
        if left and session.step_stop is not None:
            session.step_stop.check()
        selection = scored_steps(store, job.name)
        return train_report(store, run.branch, run.invocation, selection, simulated=spec.simulated)


def _begun(job: TrainJob, run: OpenRun) -> RunStarted:
    rows = run.rows
    done = sum(row.rollouts for row in rows if row.closed)
    total = sum(row.rollouts for row in rows)
    return RunStarted(run.branch.run, run.branch.id, len(rows), total, done, job.spec.simulated)


def _missed(job: TrainJob, start: StartingPoint, total: int) -> CheckpointRow | None:
    """Return the last checkpoint if a kill prevented its evaluation."""
    saved, selects = start.saved, job.selects
    if saved is None or selects is None or selects.is_done(saved.sha256, saved.step):
        return None
    return saved if evaluates(job.every, saved.step, last=saved.step == total - 1) else None


async def _evaluate(job: TrainJob, player: Player, saved: CheckpointRow) -> None:
    """Score the weights of a checkpoint in the same way as during training.

    Raises:
        ConfigError: The checkpoint does not contain the weights that were saved.
        PrunedError: The score is too low to continue.
    """
    folder = checked_folder(job.session, job.name, saved)
    if folder is not None and job.selects is not None:
        # The seed that the training process uses after this step: see `Saving`.
        seed = update_seed(settings_of(job.config).seed, -1 - saved.step, 0)
        answers = await answers_to(job, job.selects, folder, seed)
        await selected(job, player, saved.sha256, saved.step, answers)


async def _work(
    job: TrainJob, run: OpenRun, rows: Sequence[StepRow], start: StartingPoint, player: Player
) -> None:
    """Train in a thread, which reports its steps to this loop and waits for the replies."""
    session = job.session
    read = partial(session.store.read, datasets.samples_of)
    work = TrainingRun(
        branch=run.branch,
        store=session.store,
        player=player,
        rows={row.plan.step: row for row in rows},
        samples={sample.id: sample for row in rows for sample in read(row.plan)},
        instructions=job.config.evaluation.agent.agent.instructions,
        seed=settings_of(job.config).seed,
        update_epochs=settings_of(job.config).update_epochs,
        max_failed_share=job.config.practice.max_failed_share,
        drain=session.admission.drain,
        ranks=job.ranks.count,
        folder=session.store.path.resolve().parent,
        # After a restart with changed settings, earlier uninformative steps do not count.
        uniform=_untaught(rows, start.step) if job.session.restart_step is None else [],
    )
    folder = checkpoints_folder(session.store.path, run.branch)
    for half in folder.parent.glob(f"*/{MAKING}"):  # left behind by interrupted saves
        shutil.rmtree(half, ignore_errors=True)
    plan = plan_of(job, [row.plan for row in rows], folder, start)
    stop = session.step_stop or StepStop()
    telling = OnLoop(asyncio.get_running_loop(), work, stop, job)
    thread = asyncio.ensure_future(asyncio.to_thread(train, plan, job.ranks, telling))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        # The thread cannot be stopped within a step, so wait for it. A second signal exits anyway.
        telling.stop.signal = telling.stop.signal or 2
        with suppress(Exception):
            await thread
        raise
    except GrpoPracticeError:
        raise
    except Exception as e:
        raise _explained(e, run.branch.run) from e


def _untaught(rows: Sequence[StepRow], before: int) -> list[int]:
    """Return the consecutive steps immediately before a step in which no group taught anything."""
    done = [row for row in rows if row.closed and row.plan.step < before]
    taught = [row.plan.step for row in done if (row.stats or {}).get("informative")]
    return [row.plan.step for row in done if row.plan.step > max(taught, default=-1)]


def _explained(error: Exception, run: str) -> Exception:
    """Return a known error with an explanation and a hint, and any other error unchanged."""
    if is_out_of_memory(error):
        return RunFailedError(
            f"the device ran out of memory while training {run}; its last checkpoint is intact",
            hint="--set train.memory=low, a smaller train.group_size or max_output_tokens, or a"
            " smaller model",
        )
    if "No space left" in str(error):  # OSError, or a library's own type
        return RunFailedError(
            f"the disk was full while saving a checkpoint of {run}; the one before is intact",
            hint="free some space and repeat the command",
        )
    return error
