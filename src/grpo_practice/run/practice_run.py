"""Run practice from its configuration: data, plan, models, the loop, and evaluations."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from grpo_practice.config import Loaded
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.core.errors import ChangedKey, ConfigError, FingerprintError, RunFailedError
from grpo_practice.core.events import RunStarted
from grpo_practice.core.fences import Fences
from grpo_practice.core.prompts.files import prompts_from
from grpo_practice.core.types import Library, PlannedStep
from grpo_practice.practice import METHOD
from grpo_practice.practice.reading import room_of
from grpo_practice.rollout.attempts import SystemCheck
from grpo_practice.rollout.groups.plan import plan_practice
from grpo_practice.run.batched_runs import together
from grpo_practice.run.clients import Connections, Models, endpoint_of
from grpo_practice.run.configs import practice_config
from grpo_practice.run.driver import playing
from grpo_practice.run.evaluated_steps import chosen_among, due, evaluate_baseline, evaluate_library
from grpo_practice.run.evaluation_run import EvalJob, eval_job, wanted_rollouts
from grpo_practice.run.library_file import start_library, start_named, start_option
from grpo_practice.run.own_code import (
    AgentFunction,
    PythonObjects,
    check_own,
    python_objects,
    sha_of,
)
from grpo_practice.run.player import PlayerSpec, open_player
from grpo_practice.run.preflight import (
    check_models,
    check_plan,
    check_texts,
    practice_data,
    scorable,
    session_of,
    verify_function,
)
from grpo_practice.run.recorded import RecordedAttempts, recorded_attempts
from grpo_practice.run.requests.runs import PracticeRequest
from grpo_practice.run.session import OpenRun, PilotOverError, Session
from grpo_practice.run.specs import (
    EvalTarget,
    at_practice,
    configured_prompts,
    practice_spec,
    teacher_context,
)
from grpo_practice.store import branches, datasets
from grpo_practice.store.identity import ATTEMPTS_SHA, diff
from grpo_practice.store.identity import METHOD as METHOD_KEY
from grpo_practice.store.queries import scores
from grpo_practice.store.records import Branch, DatasetRow, Purpose, RunSpec, StepRow
from grpo_practice.store.run_names import eval_name
from grpo_practice.verify.resolve import VerifyFunction

if TYPE_CHECKING:
    from grpo_practice.practice.answer_guard import AnswerGuard
    from grpo_practice.practice.context import AfterStep
    from grpo_practice.reports.run_reports import PracticeReport


@dataclass(frozen=True, slots=True)
class PracticeJob:
    """A prepared practice run: everything that it names has been found and checked."""

    session: Session
    loaded: Loaded[PracticeConfig]
    spec: RunSpec
    dataset: DatasetRow
    sample_ids: list[int]
    verify: VerifyFunction
    start: Library | None
    agent: AgentFunction | None = None
    tests: EvalJob | None = None
    """Evaluation to run after steps; None unless `do_eval` is set."""
    selects: EvalJob | None = None
    """Evaluation that chooses the best step; None unless `select_dataset` is set."""
    start_name: str = ""
    """Option that specified the start library, as typed."""
    recorded: RecordedAttempts | None = None
    """Attempts that already exist; None plays attempts."""
    pilot: int | None = None
    """Maximum number of groups to play now, as a pilot that leaves the next step open."""

    @property
    def config(self) -> PracticeConfig:
        """Configuration of the run."""
        return self.loaded.config

    def start_named(self) -> AbstractContextManager[None]:
        """Return the context in which the run begins; see `library_file.start_named`."""
        return start_named(self.session.store, self.config.exp_id, self.start, self.start_name)


def prepare_practice(session: Session, request: PracticeRequest) -> PracticeJob:
    """Return the job; nothing has been paid for or recorded yet.

    Raises:
        ConfigError: The configuration, the agent, the verify function or a prompt cannot be used.
        DataError: A dataset is missing, or a gold answer cannot be scored.
    """
    objects = python_objects(request.agent, request.verify)
    loaded = practice_config(session.store, request, objects)
    config, folder, settings = loaded.config, loaded.base_dir, loaded.config.practice
    start = start_library(session, request.start)
    session = session_of(session, request, loaded, config.exp_id)
    if objects.agent is None and not session.only_looks:
        check_own(config.evaluation.agent, folder)
    verify = verify_function(session, objects.verify, config.evaluation.verify, folder)
    recorded = recorded_attempts(session, config, folder, verify)
    dataset, ids = recorded.questions if recorded else practice_data(session, loaded, verify)
    check_models(config, verify)
    # A resumed run keeps its library, and need not be told again where it came from.
    if start is None:
        start = session.store.read(branches.start_library, config.exp_id)
    prompts = configured_prompts(config, folder)
    check_texts({f"prompts_dir: {name}.md": prompt.text for name, prompt in prompts.items()})
    agent = objects.agent
    sha = sha_of(config.evaluation.agent, folder) if agent is None else agent.sha
    spec = practice_spec(loaded, sha, verify, dataset, prompts, start)
    if recorded is not None:
        spec = replace(spec, identity={**spec.identity, ATTEMPTS_SHA: recorded.staged.sha})
    job = PracticeJob(session, loaded, spec, dataset, ids, verify, start, agent)
    job = replace(job, start_name=start_option(request.start), recorded=recorded)
    tests, selects = None, None
    if settings.do_eval:
        tested, limit = config.evaluation.data.dataset, settings.eval_data_truncate
        tests = _on_the_way(job, objects, tested, limit)
    if settings.select_dataset:
        selects = _on_the_way(job, objects, settings.select_dataset, purpose="select")
    return replace(job, tests=tests, selects=selects)


def _on_the_way(
    job: PracticeJob,
    objects: PythonObjects,
    dataset: str | None,
    limit: int | None = None,
    purpose: Purpose = "test",
) -> EvalJob:
    """Return the evaluation of libraries on a dataset; its name changes with each library."""
    config = job.config
    data = config.evaluation.data.model_copy(update={"dataset": dataset})
    evaluation = config.evaluation.model_copy(update={"exp_id": config.exp_id, "data": data})
    loaded = job.loaded.as_evaluation(evaluation)
    # Apply the flags to the practice run only; otherwise its evaluations would be paid for again.
    session = replace(job.session, restart_step=None, again=False)
    target = EvalTarget(eval_name(config.exp_id), purpose=purpose, parent_run=config.exp_id)
    return eval_job(session, loaded, target, objects, limits=config.practice, limit=limit)


async def run_practice(job: PracticeJob) -> "PracticeReport":
    """Complete the run, as far as the endpoint allows, and return its report.

    Raises:
        FingerprintError: The run was begun with a different configuration.
        EndpointRefusedError: The endpoint refuses requests.
        RunFailedError: Too many rollouts of a step failed.
    """
    try:
        return await _run(job)
    except NotLearntError as e:
        return e.report


async def pilot_practice(job: PracticeJob, groups: int) -> None:
    """Play and distil the next step's first groups without closing the step; see `run_practice`."""
    with suppress(PilotOverError, NotLearntError):
        await _run(replace(job, pilot=groups))


class NotLearntError(RunFailedError):
    """Raised if a merge failed or no group taught anything; the run is then recorded as failed."""

    def __init__(self, report: "PracticeReport") -> None:
        super().__init__("; ".join(report.why_failed))
        self.report = report


async def _run(job: PracticeJob) -> "PracticeReport":
    spec, store = job.spec, job.session.store
    with job.start_named():
        async with playing(job.session, [job], planned, _begun) as (run,):
            rows = run.rows
            left = any(not row.closed for row in rows)
            # Do this only now, because the row of an evaluation refers to the row of its practice
            # run.
            if left and job.tests and job.pilot is None and needs_baseline(job, run.branch):
                await evaluate_baseline(job.tests)
            # Evaluations may remain even if every step is closed.
            if left or job.tests or job.selects:
                await _work(job, run, rows)
            if left and job.pilot is not None:
                raise PilotOverError
            from grpo_practice.reports.run_reports import practice_report

            report = practice_report(
                store,
                run.branch,
                run.invocation,
                exp_id=job.config.exp_id,
                simulated=spec.simulated,
            )
            # Raise inside the block, so that the invocation is recorded as failed.
            if report.why_failed:
                raise NotLearntError(report)
    return report


def _begun(job: PracticeJob, run: OpenRun) -> RunStarted:
    rows = run.rows
    if job.recorded:  # before counting, because they are not played
        job.recorded.fill(job.session.store, run.branch, rows)
    settled = job.session.store.read(scores.settled_counts, run.branch)
    done = sum(r.rollouts if r.closed else settled.get(r.plan.step, 0) for r in rows)
    first = any(not row.closed for row in rows) and needs_baseline(job, run.branch)
    settings, on_the_way = job.config.practice, 0  # over all commands that resume the run
    if job.tests is not None:
        on_the_way += (len(due(settings, rows)) + first) * wanted_rollouts(job.tests)
    if job.selects is not None:  # + 1: the start library is a candidate, too
        on_the_way += (1 + len(chosen_among(settings, rows))) * wanted_rollouts(job.selects)
    return RunStarted(
        run.branch.run,
        run.branch.id,
        len(rows),
        sum(row.rollouts for row in rows),
        done,
        job.spec.simulated,
        evaluations=on_the_way if job.pilot is None else 0,
    )


def planned(
    job: PracticeJob, branch: Branch, rows: Sequence[StepRow]
) -> tuple[list[PlannedStep], list[str]]:
    """Return the planned steps, made from the run's original samples, and any notices.

    Raises:
        FingerprintError: A sample is missing, or fewer epochs are requested than planned.
        ConfigError: There is no step to play, or a stored prompt cannot be used.
    """
    store = job.session.store
    settings, ids, recorded = job.config.practice, job.sample_ids, job.recorded
    own = [row.plan for row in rows if row.branch_id == branch.id]
    played = sorted({i for plan in own for i, _ in plan.slots})
    notices = check_plan(store, branch, job.dataset, played)
    epochs = 1 + max((plan.epoch for plan in own), default=0)
    if own and settings.epochs < epochs:
        raise FingerprintError(
            f"{branch.run} has {epochs} epochs planned; their number can only grow",
            [ChangedKey("practice.epochs", epochs, settings.epochs)],
            hint="undo the change, or add --restart-step N to plan again from step N on",
        )
    # Plan with the run's original samples; rows added to the dataset since then do not count.
    if branch.dataset_id != job.dataset.id and recorded is None:
        planned_of = store.read(datasets.by_id, branch.dataset_id)
        ids, _ = scorable(store, planned_of, job.verify, settings)
    plan = plan_practice(
        ids,
        # A second pass over the same attempts would only ask the teacher the same again.
        epochs=1 if recorded else settings.epochs,
        batch_size=settings.batch_size,
        attempts=recorded.counts if recorded else settings.grpo_n,
        seed=settings.seed if settings.shuffle_data else None,
        drop_last=settings.drop_last,
    )
    if not plan:
        raise ConfigError(
            f"practice.batch_size {settings.batch_size} with drop_last leaves no step to play",
            hint="make the batch smaller, or drop_last false",
        )
    changed = diff({METHOD_KEY: branch.identity.get(METHOD_KEY)}, {METHOD_KEY: METHOD})
    # A complete run is only read, so its method does not matter.
    if changed and len(plan) > sum(row.closed for row in rows):
        raise FingerprintError(
            f"{branch.run} was begun by another version, which merges differently",
            changed,
            hint="give the new run another exp_id, or add --restart-step N to play"
            " again from step N on",
        )
    if len(plan) > sum(row.closed for row in rows):
        prompts_from(branch.prompts, branch.run)  # raise before starting or sending anything
    return plan, notices


async def _work(job: PracticeJob, run: OpenRun, rows: Sequence[StepRow]) -> None:
    # Imported here, because a forecast needs the job and not the method.
    from grpo_practice.practice.answer_guard import LazyGuard
    from grpo_practice.practice.context import Practice
    from grpo_practice.practice.loop import practise
    from grpo_practice.practice.teacher import Teacher

    session = job.session
    left = any(not row.closed for row in rows)
    config, settings = job.config, job.config.practice
    agent = config.evaluation.agent
    # In a finished run, only evaluations may remain, and they make the announcements themselves.
    # Toolkits and programs, however, are started below in any case.
    if left or agent.toolkits or agent.type != "simple":
        session.announce()
    connections = Connections(
        run.emit,
        concurrency=(settings.rollout_concurrency, config.evaluation.judge_concurrency),
        admission=session.admission,
    )
    models = Models(connections, run.ledger, run.emit, config.evaluation.prices, run.batch_log)
    spec = PlayerSpec(
        agent=agent,
        base_dir=job.loaded.base_dir,
        student=at_practice(config),
        judge=config.judge,
        verify=job.verify,
        run_seed=settings.seed,
        task_timeout_s=settings.task_timeout,
        function=job.agent,
        only_scores=job.recorded is not None,
    )
    async with connections, open_player(spec, session, run, models) as (player, later):
        reply = endpoint_of(config.teacher)[0].get("max_tokens")
        teacher = Teacher(
            chat=await models.chats(config.teacher, "teacher"),
            # A finished run sends nothing to its teacher, so old prompts must not stop its
            # evaluations.
            prompts=prompts_from(run.branch.prompts, run.branch.run) if left else {},
            agent_objective=settings.agent_objective,
            learning_objective=settings.learning_objective,
            truth=settings.given_ground_truth,
            limit=settings.num_experiences_per_query,
            run_seed=settings.seed,
            instructions=config.evaluation.agent.agent.instructions,
            summaries=settings.summaries,
            most_library_tokens=settings.max_library_tokens,
            room=room_of(teacher_context(config), reply),
            reply=reply,
            fences=Fences(run.branch.fence_key),
        )
        practice = Practice(
            branch=run.branch,
            store=session.store,
            emit=run.emit,
            player=player,
            later=later,
            teacher=teacher,
            settings=together(config, rows),
            drain=session.admission.drain,
            after_step=_after_step(job, run.branch, rows),
            # Read the answers only when a lesson has to be checked, because reading all answers
            # of a large dataset takes seconds.
            guard=LazyGuard(partial(_guard, job, run.branch)) if settings.answer_guard else None,
            page_tools=agent.page_tools,
            check=None if agent.ignores_system else SystemCheck(run.emit, session.admission.drain),
            recorded=session.store.put_library(run.branch, Library()) if job.recorded else None,
            pilot=job.pilot,
        )
        await practise(practice, rows)


def _guard(job: PracticeJob, branch: Branch) -> "AnswerGuard":
    """Return the guard for the answers in the whole dataset with which the run started."""
    from grpo_practice.practice.answer_guard import AnswerGuard

    agent, settings = job.config.evaluation.agent.agent, job.config.practice
    texts = [agent.instructions, settings.agent_objective, settings.learning_objective]
    # On a connection of its own, because this runs in a thread while the loop uses the store's.
    answers = job.session.store.each_apart(datasets.answers, branch.dataset_id)
    return AnswerGuard(answers, "\n".join(filter(None, texts)))


def _after_step(job: PracticeJob, branch: Branch, rows: Sequence[StepRow]) -> "AfterStep":
    """Return a function that evaluates a step's library, if the configuration requests it."""
    settings = job.config.practice
    tested, candidates = due(settings, rows), chosen_among(settings, rows)

    async def after(plan: PlannedStep, library: Library) -> None:
        if job.tests is not None and plan.step in tested:
            await evaluate_library(job.tests, library, plan.step)
        if job.selects is not None:
            # Include the start library, which is the best library if practice did harm.
            if plan.step == 0:
                await evaluate_library(job.selects, branch.library, None)
            if plan.step in candidates:
                await evaluate_library(job.selects, library, plan.step)

    return after


def needs_baseline(job: PracticeJob, branch: Branch) -> bool:
    """Return whether the agent without a library still has to be evaluated, as a baseline."""
    if not job.tests:
        return False
    from grpo_practice.reports.before_after import is_measured_without

    today = replace(branch, tests=job.spec.tests)
    return not is_measured_without(job.session.store, today, job.config.exp_id)
