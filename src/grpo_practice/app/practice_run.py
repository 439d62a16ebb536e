"""A practice run from its configuration: data, plan, models, the loop, evaluations on the way."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from grpo_practice.app.clients import Models, endpoint_of
from grpo_practice.app.custom_agent import check_own
from grpo_practice.app.evaluation_run import FEWER, EvalJob, prepare_eval, run_eval
from grpo_practice.app.player import PlayerSpec, open_player
from grpo_practice.app.preflight import LOST, check_golds, check_plan, check_texts, dataset_of
from grpo_practice.app.session import OpenRun, PilotOverError, Session, announced, open_run
from grpo_practice.app.specs import (
    ConfigSource,
    EvalRequest,
    EvalTarget,
    practice_spec,
    teacher_context,
)
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.runs import PracticeConfig, PracticeSettings
from grpo_practice.errors import Change, ConfigError, FingerprintError, RunFailedError
from grpo_practice.events import RunStarted
from grpo_practice.practice import METHOD
from grpo_practice.practice.answer_guard import AnswerGuard
from grpo_practice.practice.context import AfterStep, Practice
from grpo_practice.practice.loop import practise
from grpo_practice.practice.plan import plan_practice
from grpo_practice.practice.reading import room_of
from grpo_practice.practice.teacher import Teacher
from grpo_practice.prompts import Prompt, load_prompts, prompts_from
from grpo_practice.reports.run_reports import PracticeReport, practice_report
from grpo_practice.store import branches, datasets, steps
from grpo_practice.store.bound_keys import METHOD as METHOD_KEY
from grpo_practice.store.bound_keys import diff
from grpo_practice.store.queries import scores
from grpo_practice.store.records import Branch, DatasetRow, RunSpec, StepRow
from grpo_practice.store.run_names import eval_name, library_variant
from grpo_practice.types import Library, PlannedStep
from grpo_practice.verify.resolve import VerifyFunction, resolve


@dataclass(frozen=True, slots=True)
class PracticeJob:
    """A practice run, with everything it names looked up and checked."""

    config: PracticeConfig
    source: ConfigSource
    dataset: DatasetRow
    sample_ids: list[int]
    verify: VerifyFunction
    prompts: dict[str, Prompt]
    start: Library | None
    tests: EvalJob | None = None
    """What evaluates libraries on the way; None where the configuration does not want that."""
    selects: EvalJob | None = None
    """What chooses among them."""
    pilot: int | None = None
    """Play only so many groups of the next step, and close nothing."""


def prepare_practice(
    session: Session, config: PracticeConfig, source: ConfigSource, *, start: Library | None = None
) -> PracticeJob:
    """The job, or what is wrong with it; nothing is paid and no run is recorded yet.

    Raises:
        ConfigError: The verify function or a prompt cannot be used.
        DataError: A dataset is missing, or a gold cannot be scored.
    """
    spec, settings = config.evaluation.verify, config.practice
    check_own(config.evaluation.agent, source.base_dir)
    verify = resolve(spec.name, spec.params, spec.timeout_s, source.base_dir)
    check_texts({f"the file of verify {verify.name}": verify.source})
    dataset = dataset_of(session, config.data.practice_dataset_name, source.base_dir)
    samples = session.store.read(datasets.samples, dataset.id)[: settings.rollout_data_truncate]
    check_golds(samples, verify, dataset.name)
    for model in config.models.values():
        endpoint_of(model)  # what is wrong with it is said before anything is recorded
    folder = source.base_dir / Path(settings.prompts_dir) if settings.prompts_dir else None
    if start is None:  # a run that began with a library goes on without naming it again
        start = session.store.read(branches.start_library, config.exp_id)
    prompts = load_prompts(folder)
    texts = {f"prompts_dir: {name}.md": prompt.text for name, prompt in prompts.items()}
    check_texts(texts)
    tested, chosen_on = config.evaluation.data.dataset, settings.select_dataset
    limit = settings.eval_data_truncate
    tests = _on_the_way(session, config, source, tested, limit) if settings.do_eval else None
    selects = _on_the_way(session, config, source, chosen_on) if chosen_on else None
    ids = [s.id for s in samples]
    return PracticeJob(config, source, dataset, ids, verify, prompts, start, tests, selects)


def _on_the_way(
    session: Session,
    config: PracticeConfig,
    source: ConfigSource,
    dataset: str | None,
    limit: int | None = None,
) -> EvalJob:
    """The evaluation of libraries on a dataset; each library gives it a name of its own."""
    data = config.evaluation.data.model_copy(update={"dataset": dataset})
    evaluation = config.evaluation.model_copy(update={"exp_id": config.exp_id, "data": data})
    target = EvalTarget(eval_name(config.exp_id))
    chosen = EvalRequest(evaluation, source, target, limits=config.practice)
    return prepare_eval(session, chosen, limit=limit)


async def run_practice(session: Session, job: PracticeJob) -> PracticeReport:
    """The run is complete, as far as the endpoint allowed; what it came to.

    Raises:
        FingerprintError: The run was made under another configuration.
        EndpointRefusedError: The endpoint refuses us.
        RunFailedError: Too many rollouts of a step failed.
    """
    try:
        return await _run(session, job)
    except NotLearntError as e:
        return e.report


async def play_pilot(session: Session, job: PracticeJob, groups: int) -> None:
    """The first groups of the next step are played and distilled, and kept; no step is closed.

    Raises: as `run_practice` does.
    """
    with suppress(PilotOverError, NotLearntError):
        await _run(session, replace(job, pilot=groups))


class NotLearntError(RunFailedError):
    """A merge failed, or nothing was learnt from any group; the run is no success on record."""

    def __init__(self, report: PracticeReport) -> None:
        super().__init__("; ".join(report.why_failed))
        self.report = report


def spec_of(job: PracticeJob) -> RunSpec:
    """The run that the job is."""
    return practice_spec(job.config, job.source, job.verify, job.dataset, job.prompts, job.start)


async def _run(session: Session, job: PracticeJob) -> PracticeReport:
    config = job.config
    spec = spec_of(job)
    with open_run(session, spec, partial(planned, session, job)) as run:
        rows = session.store.read(steps.on_line, run.branch)
        there = session.store.read(scores.settled_counts, run.branch)
        done = sum(r.rollouts if r.closed else there.get(r.plan.step, 0) for r in rows)
        total = sum(row.rollouts for row in rows)
        begun = RunStarted(run.branch.run, run.branch.id, len(rows), total, done, spec.simulated)
        with announced(session, begun):
            left = any(not row.closed for row in rows)
            if left or job.tests or job.selects:
                await _work(session, job, run, rows)
            if left and job.pilot is not None:
                raise PilotOverError
            report = practice_report(
                session.store,
                run.branch,
                run.invocation,
                exp_id=config.exp_id,
                simulated=spec.simulated,
            )
            if report.why_failed:
                raise NotLearntError(report)
    return report


def planned(
    session: Session, job: PracticeJob, branch: Branch, rows: Sequence[StepRow]
) -> tuple[list[PlannedStep], list[str]]:
    """The steps it should have; of the samples it was started with, if the dataset has changed.

    Raises:
        FingerprintError: A sample is missing, or fewer epochs are asked for than planned.
        ConfigError: There is no step to play.
    """
    settings, ids = job.config.practice, job.sample_ids
    own = [row.plan for row in rows if row.branch_id == branch.id]
    played = sorted({i for plan in own for i, _ in plan.slots})
    notices = check_plan(session.store, branch, job.dataset, played)
    epochs = 1 + max((plan.epoch for plan in own), default=0)
    if own and settings.epochs < epochs:
        raise FingerprintError(
            f"{branch.run} has {epochs} epochs planned; their number can only grow",
            [Change("practice.epochs", epochs, settings.epochs)],
            hint="undo the change, or add --restart-step N to plan afresh from step N on",
        )
    if branch.dataset_id != job.dataset.id:
        at_start = session.store.read(datasets.samples, branch.dataset_id)
        ids = [s.id for s in at_start][: settings.rollout_data_truncate]
    plan = plan_practice(
        ids,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        attempts=settings.grpo_n,
        seed=settings.seed if settings.shuffle_data else None,
        drop_last=settings.drop_last,
    )
    if not plan:
        raise ConfigError(
            f"practice.batch_size {settings.batch_size} with drop_last leaves no step to play",
            hint="make the batch smaller, or drop_last false",
        )
    changed = diff({METHOD_KEY: branch.identity[METHOD_KEY]}, {METHOD_KEY: METHOD})
    if changed and len(plan) > sum(row.closed for row in rows):
        raise FingerprintError(
            f"{branch.run} was begun by an older version, which merges in another way",
            changed,
            hint="give the new run another exp_id, or add --restart-step N to play from step N on"
            " afresh",
        )
    return plan, notices


async def _work(session: Session, job: PracticeJob, run: OpenRun, rows: list[StepRow]) -> None:
    left = any(not row.closed for row in rows)  # a finished run may have an older version's prompts
    config, settings = job.config, job.config.practice
    models = Models(
        run.ledger,
        run.emit,
        concurrency=(settings.rollout_concurrency, config.evaluation.judge_concurrency),
        admission=session.admission,
        prices=config.evaluation.prices,
    )
    spec = PlayerSpec(
        agent=config.evaluation.agent,
        base_dir=job.source.base_dir,
        student=at_practice(config),
        judge=config.judge,
        verify=job.verify,
        run_seed=settings.seed,
        task_timeout_s=settings.task_timeout,
    )
    async with models, open_player(spec, session, run, models) as (player, later):
        reply = endpoint_of(config.teacher)[0].get("max_tokens")
        teacher = Teacher(
            chat=await models.chats(config.teacher, "teacher"),
            prompts=prompts_from(run.branch.prompts) if left else {},
            agent_objective=settings.agent_objective,
            learning_objective=settings.learning_objective,
            truth=settings.given_ground_truth,
            limit=settings.num_experiences_per_query,
            run_seed=settings.seed,
            instructions=config.evaluation.agent.agent.instructions,
            summaries=settings.summaries,
            room=room_of(teacher_context(config), reply),
        )
        practice = Practice(
            branch=run.branch,
            store=session.store,
            emit=run.emit,
            player=player,
            later=later,
            teacher=teacher,
            settings=settings,
            land=session.admission.land,
            after_step=_after_step(session, job, rows),
            guard=_guard(session, run.branch, job) if settings.answer_guard else None,
            pilot=job.pilot,
        )
        await practise(practice, rows)


def _guard(session: Session, branch: Branch, job: PracticeJob) -> AnswerGuard:
    """Return the guard of the answers of the whole dataset that the run was started with."""
    agent, settings = job.config.evaluation.agent.agent, job.config.practice
    told = [agent.instructions, settings.agent_objective, settings.learning_objective]
    answers = session.store.read(datasets.answers, branch.dataset_id)
    return AnswerGuard(answers, "\n".join(filter(None, told)))


def at_practice(config: PracticeConfig) -> ModelConfig:
    """The agent's model at the practice temperature; evaluation keeps the agent's own."""
    model = config.student
    warm = {"temperature": config.practice.rollout_temperature}
    return model.model_copy(update={"model_settings": model.model_settings.model_copy(update=warm)})


def due(settings: PracticeSettings, rows: Sequence[StepRow]) -> set[int]:
    """The steps after which libraries are evaluated, if they are."""
    if settings.eval_strategy == "epoch":
        return set({row.plan.epoch: row.plan.step for row in rows}.values())
    steps = {row.plan.step for row in rows}
    return {step for step in steps if (step + 1) % settings.eval_steps == 0}


def _after_step(session: Session, job: PracticeJob, rows: list[StepRow]) -> AfterStep:
    """Evaluates the library a step made, where the configuration wants that."""
    settings = job.config.practice
    tested = due(settings, rows)

    async def after(plan: PlannedStep, library: Library) -> None:
        if job.tests is not None and plan.step in tested:
            await evaluate_library(session, job.tests, library, plan.step)
        if job.selects is not None:
            variant = select_variant(settings.select_dataset or "")
            if plan.step == 0:
                await evaluate_library(session, job.selects, job.start or Library(), None, variant)
            await evaluate_library(session, job.selects, library, plan.step, variant)

    return after


async def evaluate_library(
    session: Session, job: EvalJob, library: Library, step: int | None, *variants: str
) -> None:
    """The library has its evaluation: a run of its own, so that it is never paid twice."""
    exp_id = job.config.exp_id
    name = eval_name(exp_id, library_variant(library), *variants)
    target = EvalTarget(name, library, role="in_run", parent_run=exp_id, parent_step=step)
    inner = replace(session, restart_step=None, again=False)
    prepared = replace(job, chosen=replace(job.chosen, target=target))
    try:
        await run_eval(inner, prepared)
    except FingerprintError as e:
        if {change.key for change in e.diff} & {FEWER, LOST}:
            raise
        # This run was restarted with a changed agent; what its evaluations were is kept, and
        # they are made anew.
        await run_eval(replace(inner, restart_step=0), prepared)


def select_variant(dataset: str) -> str:
    """The part of an evaluation's name that says it chooses among libraries."""
    return f"data={Path(dataset).stem if '.' in dataset else dataset}"
