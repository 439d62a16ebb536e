"""Run an evaluation from its configuration: dataset, plan, models, rollouts, report."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_practice.config import Loaded
from grpo_practice.config.schema.runs import EvalConfig, PracticeSettings
from grpo_practice.core.errors import ChangedKey, FingerprintError
from grpo_practice.core.events import RunStarted
from grpo_practice.core.types import PlannedStep
from grpo_practice.rollout.attempts import SystemCheck
from grpo_practice.rollout.evaluate import (
    Evaluation,
    evaluate,
    grown,
    plan_eval,
    unasked,
    unfinished,
)
from grpo_practice.run.batched_runs import workers
from grpo_practice.run.clients import Connections, Models, endpoint_of
from grpo_practice.run.configs import eval_config
from grpo_practice.run.driver import playing
from grpo_practice.run.evaluation_reuse import asked_before, moved
from grpo_practice.run.half_prompts import prompts_of
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
    eval_dataset,
    session_of,
    unscorable,
    unscorable_notice,
    verify_function,
)
from grpo_practice.run.requests.runs import EvalRequest
from grpo_practice.run.session import OpenRun, PilotOverError, Session
from grpo_practice.run.specs import DEFAULT_LIMITS, EvalTarget, eval_spec
from grpo_practice.store import Store, branches, datasets, steps
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import EFFECT, Branch, DatasetRow, RunSpec, StepRow
from grpo_practice.store.run_labels import ArmName
from grpo_practice.verify.resolve import VerifyFunction

if TYPE_CHECKING:
    from grpo_practice.reports.run_reports import EvalReport

FEWER = "pass_k"
"""Key of a diff that reports a request for fewer rollouts than planned."""


@dataclass(frozen=True, slots=True)
class EvalJob:
    """A prepared evaluation: everything that it names has been found and checked."""

    session: Session
    loaded: Loaded[EvalConfig]
    spec: RunSpec
    dataset: DatasetRow
    verify: VerifyFunction
    agent: AgentFunction | None
    source: Branch | None = None
    """Branch whose stored rollouts are scored again; None plays new rollouts."""
    limits: PracticeSettings = DEFAULT_LIMITS
    """Settings that provide task_timeout and max_failed_share; a practice run passes its own."""
    limit: int | None = None
    """Maximum number of the dataset's questions to play, even if more are planned."""
    pilot: int | None = None
    """Maximum number of questions to play now, as a pilot that leaves the step open."""
    unscorable: frozenset[int] = frozenset()
    """Samples whose gold answers the verify function cannot use; their plans have no attempts."""

    @property
    def config(self) -> EvalConfig:
        """Configuration of the evaluation."""
        return self.loaded.config


def prepare_eval(session: Session, request: EvalRequest) -> EvalJob:
    """Return the job; nothing has been paid for or recorded yet.

    Raises:
        ConfigError: The configuration, the agent or the verify function cannot be used.
        DataError: The dataset is missing, or a gold answer cannot be scored.
    """
    objects = python_objects(request.agent, request.verify)
    loaded, target = eval_config(session.store, request, objects)
    session = session_of(session, request, loaded, target.name)
    job = eval_job(session, loaded, target, objects, limit=request.limit)
    typed = request.library or request.agent
    if isinstance(typed, str | Path):
        job = replace(job, spec=replace(job.spec, arm=ArmName(str(typed))))
    return job


def eval_job(
    session: Session,
    loaded: Loaded[EvalConfig],
    target: EvalTarget,
    objects: PythonObjects,
    *,
    limits: PracticeSettings = DEFAULT_LIMITS,
    limit: int | None = None,
) -> EvalJob:
    """Return the job for a loaded configuration. See `prepare_eval`."""
    config, folder = loaded.config, loaded.base_dir
    # A rejudge plays nothing, and a forecast may not run the user's code.
    if target.source is None and objects.agent is None and not session.only_looks:
        check_own(config.agent, folder)
    verify = verify_function(session, objects.verify, config.verify, folder)
    check_models(config, verify)
    dataset = eval_dataset(session, config.data, folder)
    sha = sha_of(config.agent, folder) if objects.agent is None else objects.agent.sha
    spec = eval_spec(loaded, sha, verify, dataset, target)
    agent, source = objects.agent, target.source
    job = EvalJob(session, loaded, spec, dataset, verify, agent, source, limits, limit)
    return replace(job, unscorable=_left_out(job))


def _left_out(job: EvalJob) -> frozenset[int]:
    """Return the samples that cannot be scored; a notice names those that are not planned yet.

    Raises:
        DataError: Their share of the questions exceeds `max_failed_share`.
    """
    store, dataset, most = job.session.store, job.dataset, job.limit
    before, known = _checked(store, job)
    found = unscorable(store, dataset, job.verify, first=before, end=most)
    if not found:
        return frozenset(known)
    ids = store.read(datasets.sample_ids, dataset.id, most=max(found) + 1)
    # An earlier command may have planned more questions than `limit` asks for now.
    asked = max(before, min(most or dataset.n, dataset.n))
    notice = unscorable_notice(
        dataset,
        job.verify,
        found,
        n=len(known) + len(found),
        asked=asked,
        max_share=job.limits.max_failed_share,
    )
    job.session.notice(notice)
    return frozenset(known | {ids[at] for at in found})


def _checked(store: Store, job: EvalJob) -> tuple[int, set[int]]:
    """Return the number of gold answers checked during planning, and the samples that failed."""
    spec = job.spec
    branch = store.read(runs.newest_branch, spec.name)
    if branch is None:
        return 0, set()
    verifier = store.read(branches.verifier_sha, branch.verifier_id)
    # Another dataset or verify function makes earlier checks meaningless.
    if (branch.dataset_id, verifier) != (spec.dataset_id, spec.verifier.sha):
        return 0, set()
    return store.read(steps.planned_slots, branch)


async def run_eval(job: EvalJob) -> "EvalReport":
    """Complete the evaluation, as far as the endpoint allows, and return its report.

    Raises: The errors of `run_evals`.
    """
    return (await run_evals([job]))[0]


async def run_evals(jobs: Sequence[EvalJob]) -> "list[EvalReport]":
    """Complete the evaluations of a command together and return their reports.

    Raises:
        FingerprintError: A run was begun with a different configuration.
        LockedError: Another process is working on a run.
        EndpointRefusedError: The endpoint refuses requests.
        RunFailedError: Too many rollouts of a run failed.
    """
    # Call `lent` first: a restart, which `following` may ask for, would hide a moved endpoint.
    jobs = [following(lent(job)) for job in jobs]
    session, pilot = jobs[0].session, jobs[0].pilot
    # With a pilot, the error continues to `pilot_evals`, since there is no report to return.
    over = suppress(PilotOverError) if pilot is None else nullcontext()
    with over:
        async with playing(session, jobs, planned, _begun, steps_of) as opened:
            parts = [_Part(job, run) for job, run in zip(jobs, opened, strict=True)]
            await _play(parts)
            if pilot is not None and any(part.is_left for part in parts):
                raise PilotOverError
            # Rows of a step that stays open may still be queued, and the report reads them.
            await session.store.flushed()
            # Use a thread, because importing numpy and scipy would block the loop.
            reports = [await asyncio.to_thread(_report, part) for part in parts]
            steps_now = [steps_of(part.job, part.run.branch) for part in parts if part.job.limit]
            if not all(row.closed for rows in steps_now for row in rows):
                raise PilotOverError  # planned questions beyond the limit remain
    return reports


def _report(part: "_Part") -> "EvalReport":
    from grpo_practice.reports.run_reports import eval_report

    job, run = part.job, part.run
    return eval_report(
        job.session.store,
        job.config,
        run.branch,
        run.invocation,
        simulated=job.spec.simulated,
    )


def _begun(job: EvalJob, run: OpenRun) -> RunStarted:
    done = sum(job.session.store.read(scores.settled_counts, run.branch).values())
    total, branch = sum(row.rollouts for row in run.rows), run.branch
    return RunStarted(branch.run, branch.id, len(run.rows), total, done, job.spec.simulated)


async def pilot_evals(jobs: Sequence[EvalJob], questions: int) -> None:
    """Play and score the first remaining questions without closing a step; see `run_evals`."""
    with suppress(PilotOverError):
        await run_evals([replace(job, pilot=questions) for job in jobs])


def lent(job: EvalJob) -> EvalJob:
    """Return the job; a new run reuses the answers that an earlier run got to the same requests.

    Two kinds of evaluations reuse nothing. A rejudge already has its answers, from the run that it
    names. An effect measurement is compared with the library's own evaluation, so reused answers
    would appear on both sides of the comparison.
    """
    asked = {"student_at": job.config.student} if job.source is None else {}
    if job.verify.is_judge:
        asked["judge_at"] = job.config.judge
    addresses = {column: endpoint_of(model)[1].address for column, model in asked.items()}
    spec, store = replace(job.spec, addresses=addresses), job.session.store
    known = store.read(runs.find, spec.name) is not None
    own = job.source is not None or job.spec.purpose == EFFECT
    # A restart from step 0 uses no earlier answers, so their address does not matter.
    if job.session.restart_step != 0 and (notice := moved(store, spec)):
        job.session.notice(notice)
    # A known run chose its lender when it began, and `again` asks for new answers.
    if known or job.session.again or own:
        return replace(job, spec=spec)
    lender = asked_before(store, spec, job.dataset)
    return replace(job, spec=replace(spec, reuses=lender))


def following(job: EvalJob) -> EvalJob:
    """Return the job; restart a rejudge if its source run has since played more rollouts.

    Verdicts belong to rollouts, so existing verdicts are kept.
    """
    store, source = job.session.store, job.source
    branch = store.read(runs.newest_branch, job.spec.name)
    if source is None or branch is None:
        return job
    judged = store.read(steps.on_line, branch)
    played = {row.plan: row.played_by for row in to_judge(job, source)}
    if not judged or {row.plan: row.played_by for row in judged} == played:
        return job
    job.session.notice(
        f"{source.run} has changed since it was scored as {branch.run}, so the scoring is restarted"
    )
    return replace(job, session=replace(job.session, restart_step=0, again=True))


def planned(
    job: EvalJob, branch: Branch, rows: Sequence[StepRow]
) -> tuple[list[PlannedStep], list[str]]:
    """Return the steps that the run should have, and notices; a plan may grow but never shrink.

    Raises:
        FingerprintError: A sample is missing, or fewer rollouts are requested than planned.
    """
    if job.source is not None:  # `steps_of` plans a rejudge, once its branch has an ID
        return [], []
    store = job.session.store
    own = [row.plan for row in rows if row.branch_id == branch.id]
    notices = check_plan(store, branch, job.dataset, [i for p in own for i, _ in p.slots])
    attempts = max((k for plan in own for _, k in plan.slots), default=0)
    if job.config.pass_k < attempts:
        raise FingerprintError(
            f"{branch.run} has {attempts} rollouts per question; their number can only grow",
            [ChangedKey(FEWER, attempts, job.config.pass_k)],
            hint=f"add -k {attempts}, or set pass_k: {attempts} in the configuration",
        )
    stored = [row.plan for row in rows]
    if stored and branch.dataset_id != job.dataset.id:  # keep the samples of the plan
        ids = [i for plan in stored for i, _ in plan.slots]
    else:
        ids = store.read(datasets.sample_ids, job.dataset.id, most=job.limit)
    wanted = plan_eval(ids, batch_size=job.config.batch_size, attempts=job.config.pass_k)
    return grown(stored, [unasked(plan, job.unscorable) for plan in wanted]), notices


def wanted_rollouts(job: EvalJob) -> int:
    """Return the number of rollouts that the evaluation should have."""
    questions = min(job.limit or job.dataset.n, job.dataset.n) - len(job.unscorable)
    return questions * job.config.pass_k


def steps_of(job: EvalJob, branch: Branch) -> list[StepRow]:
    """Return the steps of the evaluation; for a rejudge, the steps whose rollouts it scores."""
    store = job.session.store
    if job.source is not None:
        return store.plan_rejudge(branch, to_judge(job, job.source))
    return store.read(steps.on_line, branch)


def to_judge(job: EvalJob, source: Branch) -> list[StepRow]:
    """Return the planned steps whose rollouts are rescored, with the branch that stores them."""
    rows = job.session.store.read(steps.on_line, source)
    plans = [(row, unasked(row.plan, job.unscorable)) for row in rows]
    return [
        StepRow(row.branch_id, plan, "planned", played_by=row.played_by or row.branch_id)
        for row, plan in plans
    ]


@dataclass(frozen=True, slots=True)
class _Part:
    """An opened evaluation of a command."""

    job: EvalJob
    run: OpenRun

    @property
    def is_left(self) -> bool:
        """Whether any rollout remains to be played or scored."""
        return any(unfinished(row) for row in self.run.rows)


async def _play(parts: Sequence[_Part]) -> None:
    """Play the remaining rollouts of the evaluations, if any, over shared connections."""
    left = [part for part in parts if part.is_left]
    complete = [part.job.spec.name for part in parts if not part.is_left]
    for part in parts:
        asked, limit = sum(row.groups for row in part.run.rows), part.job.limit
        if not part.is_left and limit is not None and asked > limit:
            part.job.session.notice(
                f"--limit {limit} changes nothing: all {asked} questions of {part.job.spec.name}"
                " are already played"
            )
    if not left:
        return
    session, config = left[0].job.session, left[0].job.config
    if complete:
        session.notice(
            f"already complete, and not played again: {', '.join(complete)}"
            " (--again replays everything)"
        )
    session.announce()
    connections = Connections(
        session.emit,
        concurrency=(config.concurrency, config.judge_concurrency),
        admission=session.admission,
    )
    async with connections, AsyncExitStack() as stack:
        evaluations = [await _opened(part, connections, stack) for part in left]
        at_once = workers(config, config.concurrency, [row for p in left for row in p.run.rows])
        await evaluate(evaluations, session.store, concurrency=at_once, seed=config.seed)


async def _opened(part: _Part, connections: Connections, stack: AsyncExitStack) -> Evaluation:
    """Return an evaluation with its player, which the stack closes."""
    job, run, config = part.job, part.run, part.job.config
    spec = PlayerSpec(
        agent=config.agent,
        base_dir=job.loaded.base_dir,
        student=config.student,
        judge=config.judge,
        verify=job.verify,
        run_seed=config.seed,
        task_timeout_s=job.limits.task_timeout,
        only_scores=job.source is not None,
        function=job.agent,
    )
    models = Models(connections, run.ledger, run.emit, config.prices, run.batch_log)
    player, _ = await stack.enter_async_context(open_player(spec, job.session, run, models))
    return Evaluation(
        branch=run.branch,
        rows=run.rows,
        player=player,
        prompt=prompts_of(job.spec.purpose, config, run.branch.library, run.rows),
        emit=run.emit,
        max_failed_share=job.limits.max_failed_share,
        drain=job.session.admission.drain,
        check=None if job.config.agent.ignores_system else SystemCheck(run.emit),
        pilot=job.pilot,
        limit=job.limit,
    )
