"""A training run from its configuration: data, plan, base model, steps, checkpoints, report."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from grpo_practice.app.clients import Connections, Models
from grpo_practice.app.configs import train_config
from grpo_practice.app.preflight import (
    check_plan,
    dataset_of,
    scorable,
    session_of,
    verify_function,
)
from grpo_practice.app.request import RunRequest
from grpo_practice.app.session import OpenRun, Session, StepStop, announced, open_run, to_the_end
from grpo_practice.app.shutdown import SIGNALS
from grpo_practice.app.specs import train_spec
from grpo_practice.app.train_evaluation import (
    WeightsEvaluation,
    score_weights,
    scored_steps,
    weights_evaluation,
)
from grpo_practice.app.train_plan import checkpoints_folder, plan_of
from grpo_practice.app.train_resume import Start, start_of
from grpo_practice.calls import Scope
from grpo_practice.config import Loaded
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.errors import (
    Change,
    ConfigError,
    FingerprintError,
    GrpoPracticeError,
    PrunedError,
    RunFailedError,
)
from grpo_practice.events import RunStarted
from grpo_practice.fences import Fences
from grpo_practice.llm.ledgered import AgentChat
from grpo_practice.reports.training import TrainReport, train_report
from grpo_practice.rollout import Player
from grpo_practice.store import datasets, steps
from grpo_practice.store.records import Branch, DatasetRow, StepRow
from grpo_practice.store.run_names import train_name
from grpo_practice.train.checks import (
    check_installed,
    check_machine,
    check_training,
    steps_planned,
)
from grpo_practice.train.gather import Ranks
from grpo_practice.train.recipe import batch_shape, settings_of
from grpo_practice.train.steps import TrainingRun
from grpo_practice.train.trainer import (
    OtherRankFailedError,
    dismiss,
    help_train,
    is_out_of_memory,
    train,
)
from grpo_practice.train.weights import weights_sha
from grpo_practice.train.work import MAKING, Answer
from grpo_practice.types import PlannedStep, Trajectory
from grpo_practice.verify.resolve import VerifyFunction
from grpo_practice.verify.verifier import Verifier

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TrainJob:
    """A training run with all that it names looked up and checked, ready to run."""

    session: Session
    loaded: Loaded[PracticeConfig]
    dataset: DatasetRow
    sample_ids: list[int]
    verify: VerifyFunction
    model: Path
    """Folder of the base model."""
    model_sha: bytes
    ranks: Ranks
    name: str
    selects: WeightsEvaluation | None = None
    """Evaluation on the way; None without `eval_every`."""
    every: int = 0
    """Steps between these evaluations."""
    on_score: Callable[[int, float], bool] | None = None
    """Told of each of them, step and mean reward; True ends the run there."""

    @property
    def config(self) -> PracticeConfig:
        """The run's configuration."""
        return self.loaded.config


def prepare_train(session: Session, request: RunRequest, name: str | None = None) -> TrainJob:
    """Return the job; no weights are loaded and no run is recorded yet.

    The run has the name given; by default it is that of its experiment.

    Raises:
        ConfigError: The configuration, the machine, the base model or the verify function cannot
            be used.
        DataError: A dataset is missing, or a gold cannot be scored.
    """
    loaded = train_config(session.store, request)
    config, folder = loaded.config, loaded.base_dir
    name = name or train_name(config.exp_id)
    session = session_of(session, request, loaded, name)
    ranks = Ranks.of_environment()
    batch_shape(settings_of(config), ranks.count)
    verify = verify_function(session, None, config.evaluation.verify, folder)
    if verify.is_judge and not config.judge.model_provider.model:
        raise ConfigError(
            f"verify {verify.name} asks a judge, and no model is named",
            hint="set JUDGE_LLM_MODEL (in .env, say), or judge_model of the evaluation",
        )
    dataset = dataset_of(session, config.data.practice_dataset_name, folder)
    ids, notice = scorable(session.store, dataset, verify, config.practice)
    if notice:
        session.notice(notice)
    samples = session.store.read(datasets.samples, dataset.id)
    room = session.store.path.resolve().parent
    check_installed()
    check_machine(settings_of(config), ranks.count)
    model = check_training(config, folder, [sample.question for sample in samples], room)
    # Minutes of reading for a large model, and a look needs none of it.
    sha = b"" if session.only_looks else weights_sha(model)
    session = replace(session, step_stop=StepStop())
    job = TrainJob(session, loaded, dataset, ids, verify, model, sha, ranks, name)
    every = settings_of(config).eval_every
    return selecting(job, every) if every else job


def selecting(job: TrainJob, every: int) -> TrainJob:
    """Return the job with evaluations on `practice.select_dataset` on its way.

    Raises:
        ConfigError: No such dataset is named.
        DataError: There is none.
    """
    dataset = job.config.practice.select_dataset
    if dataset is None:
        raise ConfigError(
            "practice.select_dataset is not set: there are no questions to choose weights by",
            hint="--set practice.select_dataset=NAME, other questions than those evaluated on",
        )
    found = weights_evaluation(job.session, job.loaded, job.verify, dataset, job.name)
    return replace(job, selects=found, every=every)


def help_if_not_first() -> bool:
    """Take part in a training that another process leads, and return True; else return False.

    Signals are left to the first one: all end after the same step.
    """
    ranks = Ranks.of_environment()
    if ranks.first:
        return False
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    check_installed()
    try:
        help_train(ranks)
    except OtherRankFailedError as e:
        raise RunFailedError("the first process has failed, and says why") from e
    return True


async def run_train(job: TrainJob) -> TrainReport:
    """Train until the plan is done, and return the report.

    Raises:
        FingerprintError: The run was begun under another configuration.
        RunFailedError: The loss is no number, memory ran out, or nothing was left to learn.
        StoppedError: A signal ended it after a step, with a checkpoint.
    """
    job.loaded.remember()
    spec = replace(train_spec(job.loaded, job.verify, job.dataset, job.model_sha), name=job.name)
    start = start_of(job.session, spec, total=len(steps_planned(job.config, job.sample_ids)))
    session = start.session
    with open_run(session, spec, partial(planned, job)) as run:
        store = session.store
        rows = store.read(steps.on_line, run.branch)
        left = [row for row in rows if not row.closed]
        done = sum(row.rollouts for row in rows if row.closed)
        total = sum(row.rollouts for row in rows)
        begun = RunStarted(run.branch.run, run.branch.id, len(rows), total, done, spec.simulated)
        with announced(session, begun):
            if left:
                session.announce()
                await _work(job, run, rows, start)
                stop = session.step_stop
                if stop is not None:
                    stop.check()
            else:
                dismiss(job.ranks)
            return train_report(
                store,
                run.branch,
                run.invocation,
                scored_steps(store, job.name),
                simulated=spec.simulated,
            )


def planned(
    job: TrainJob, branch: Branch, rows: Sequence[StepRow]
) -> tuple[list[PlannedStep], list[str]]:
    """Return the steps it should have, and notices; of the samples it was started with.

    Raises:
        FingerprintError: A sample is missing, or fewer steps are asked for than planned.
    """
    own = [row.plan for row in rows if row.branch_id == branch.id]
    played = sorted({i for plan in own for i, _ in plan.slots})
    notices = check_plan(job.session.store, branch, job.dataset, played)
    ids = job.sample_ids
    if branch.dataset_id != job.dataset.id:
        was = job.session.store.read(datasets.by_id, branch.dataset_id)
        ids, _ = scorable(job.session.store, was, job.verify, job.config.practice)
    plan = steps_planned(job.config, ids)
    if len(plan) < len(rows):
        raise FingerprintError(
            f"{branch.run} has {len(rows)} steps planned; their number can only grow",
            [Change("train.steps", len(rows), len(plan))],
            hint="undo the change, or give the run another exp_id",
        )
    return plan, notices


async def _work(job: TrainJob, run: OpenRun, rows: Sequence[StepRow], start: Start) -> None:
    """Train on a thread, which tells this loop of its steps and waits for it."""
    session = job.session
    async with scoring(job, run) as player:
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
            land=session.admission.land,
            ranks=job.ranks.count,
            folder=session.store.path.resolve().parent,
        )
        folder = checkpoints_folder(session.store.path, run.branch)
        for half in folder.parent.glob(f"*/{MAKING}"):  # of a save that a kill has ended
            shutil.rmtree(half, ignore_errors=True)
        plan = plan_of(job, [row.plan for row in rows], folder, start)
        stop = session.step_stop or StepStop()
        telling = _OnLoop(asyncio.get_running_loop(), work, stop, job.selects, job.on_score)
        thread = asyncio.ensure_future(asyncio.to_thread(train, plan, job.ranks, telling))
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            # The thread cannot be ended between two steps; a second signal leaves without it.
            telling.stop.signal = telling.stop.signal or 2
            with suppress(Exception):
                await thread
            raise
        except GrpoPracticeError:
            raise
        except Exception as e:
            raise _explained(e, run.branch.run) from e


def _explained(error: Exception, run: str) -> Exception:
    """Return the error as a person can use it; an unknown one as it is."""
    if is_out_of_memory(error):
        return RunFailedError(
            f"the device ran out of memory while {run} was trained; its last checkpoint is whole",
            hint="--set train.memory=low, a smaller train.group_size or max_output_tokens, or a"
            " smaller model",
        )
    if "No space left" in str(error):  # an OSError, or what a library makes of one
        return RunFailedError(
            f"the disk was full while a checkpoint of {run} was saved; the one before is whole",
            hint="free some space and run the command again",
        )
    return error


@dataclass(frozen=True, slots=True)
class _OnLoop:
    """The run's steps as the training thread tells of them: each call waits for the loop."""

    loop: asyncio.AbstractEventLoop
    run: TrainingRun
    stop: StepStop
    selects: WeightsEvaluation | None
    on_score: Callable[[int, float], bool] | None

    def began(self, step: int) -> None:
        self._wait(self.run.began(step))

    def score(self, step: int, answers: Sequence[Answer]) -> list[float | None]:
        return self._wait(self.run.score(step, answers))

    def updated(self, step: int, inner: int, logs: Mapping[str, float]) -> None:
        self._wait(self.run.updated(step, inner, logs))

    def saved(self, step: int, folder: Path) -> None:
        self._wait(self.run.saved(step, folder))

    def evaluated(self, step: int, answers: Sequence[Answer]) -> None:
        if self.selects is not None:
            sha, player = self.run.shas[step], self.run.player
            work = score_weights(self.selects, player, answers, sha=sha, step=step)
            score = self._wait(work)
            if score is not None and self.on_score is not None and self.on_score(step, score):
                raise PrunedError(
                    f"{self.run.branch.run} is not trained further: {score:.3f} after step {step}"
                    " is less than others had"
                )

    def stopping(self) -> bool:
        # By way of the loop: a signal that came while it slept is taken when its thread wakes.
        return self._wait(self._stopping())

    async def _stopping(self) -> bool:
        return self.stop.signal is not None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


@asynccontextmanager
async def scoring(job: TrainJob, run: OpenRun) -> AsyncIterator[Player]:
    """Open what scores answers; nothing here plays: the weights do."""
    session, config = job.session, job.config
    fences = Fences(run.branch.fence_key)
    connections = Connections(
        run.emit,
        concurrency=(1, config.evaluation.judge_concurrency),
        admission=session.admission,
    )
    async with connections, Verifier(job.verify, fences) as verifier:
        await verifier.start()
        judge: Any = _no_model
        if job.verify.is_judge:
            models = Models(connections, run.ledger, run.emit, config.evaluation.prices)
            judge = await models.chats(config.judge, "judge")
        yield Player(
            agent=_no_agent,
            student=_no_model,
            judge=judge,
            verify=to_the_end(session, verifier),
            run_seed=settings_of(config).seed,
            task_timeout_s=config.practice.task_timeout,
            emit=run.emit,
        )


def _no_model(scope: Scope) -> AgentChat:
    """Return what nothing of a training run asks: a verify function without a judge does not."""
    return _Nobody()  # type: ignore[return-value]


class _Nobody:
    async def __call__(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("no model is asked here")


async def _no_agent(question: str, system: str, context: object) -> Trajectory:
    raise AssertionError("answers are sampled from the weights")
