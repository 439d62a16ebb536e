"""An evaluation from its configuration: dataset, plan, models, rollouts, report."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from grpo_practice.app.clients import Models, endpoint_of
from grpo_practice.app.custom_agent import check_own
from grpo_practice.app.player import PlayerSpec, open_player
from grpo_practice.app.preflight import check_golds, check_plan, check_texts, eval_dataset
from grpo_practice.app.session import OpenRun, PilotOverError, Session, announced, open_run
from grpo_practice.app.specs import EvalRequest, eval_spec
from grpo_practice.config.schema.runs import EvalConfig
from grpo_practice.errors import Change, FingerprintError
from grpo_practice.evaluate import Evaluation, evaluate, plan_eval, unfinished
from grpo_practice.events import Notice, RunStarted
from grpo_practice.prompts.system import system_prompt
from grpo_practice.reports.run_reports import EvalReport, eval_report
from grpo_practice.store import Store, branches, datasets, steps
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import Branch, DatasetRow, RunSpec, StepRow
from grpo_practice.types import PlannedStep
from grpo_practice.verify.resolve import VerifyFunction, resolve

FEWER = "pass_k"
"""The key of a diff that says fewer rollouts are asked for."""


@dataclass(frozen=True, slots=True)
class EvalJob:
    """An evaluation, with everything it names looked up and checked."""

    chosen: EvalRequest
    dataset: DatasetRow
    verify: VerifyFunction
    limit: int | None = None
    """Ask only the first so many questions of the dataset, also where more are planned."""
    pilot: int | None = None
    """Ask only so many of the questions that are left, and close nothing."""

    @property
    def config(self) -> EvalConfig:
        """The evaluation's configuration."""
        return self.chosen.config


def prepare_eval(session: Session, chosen: EvalRequest, *, limit: int | None = None) -> EvalJob:
    """The job, or what is wrong with it; nothing is paid and no run is recorded yet.

    Raises:
        ConfigError: The verify function cannot be used.
        DataError: The dataset is missing, or a gold cannot be scored.
    """
    config, folder = chosen.config, chosen.source.base_dir
    if chosen.rejudge is None:
        check_own(config.agent, folder)
    for model in config.models.values():
        endpoint_of(model)  # what is wrong with it is said before anything is recorded
    verify = resolve(config.verify.name, config.verify.params, config.verify.timeout_s, folder)
    check_texts({f"the file of verify {verify.name}": verify.source})
    dataset = eval_dataset(session, config.data, folder)
    job = EvalJob(chosen, dataset, verify, limit)
    if not _checked(session.store, spec_of(job)):
        check_golds(session.store.read(datasets.samples, dataset.id), verify, dataset.name)
    return job


def _checked(store: Store, spec: RunSpec) -> bool:
    """True when the run was begun with this dataset and this verify function, so with its golds."""
    found = store.read(runs.find, spec.name)
    if found is None or found.head_branch is None:
        return False
    branch = store.read(branches.load, found.head_branch)
    judge = store.read(branches.judge_sha, branch.judge_id)
    return (branch.dataset_id, judge) == (spec.dataset_id, spec.judge.sha)


async def run_eval(session: Session, job: EvalJob) -> EvalReport:
    """The evaluation is complete, as far as the endpoint allowed; what it came to.

    Raises:
        FingerprintError: The run was made under another configuration.
        EndpointRefusedError: The endpoint refuses us.
        RunFailedError: Too many rollouts failed.
    """
    spec, reports = spec_of(job), list[EvalReport]()
    session = following(session, job)
    over = suppress(PilotOverError) if job.pilot is None else nullcontext()
    with over, open_run(session, spec, partial(planned, session, job)) as run:
        rows = steps_of(session, job, run.branch)
        with announced(session, _begun(session, run, rows, simulated=spec.simulated)):
            left = any(unfinished(row) for row in rows)
            if left:
                await _play(session, job, run, rows)
            if left and job.pilot is not None:
                raise PilotOverError
            # In a thread: it imports numpy and scipy, which takes a while.
            reports.append(
                await asyncio.to_thread(
                    eval_report,
                    session.store,
                    job.config,
                    run.branch,
                    run.invocation,
                    simulated=spec.simulated,
                )
            )
            if job.limit and not all(row.closed for row in steps_of(session, job, run.branch)):
                raise PilotOverError  # the other questions that were planned are left
    return reports[0]


async def play_pilot(session: Session, job: EvalJob, questions: int) -> None:
    """The first questions that are left are asked and scored, and kept; no step is closed.

    Raises: as `run_eval` does.
    """
    with suppress(PilotOverError):
        await run_eval(session, replace(job, pilot=questions))


def spec_of(job: EvalJob) -> RunSpec:
    """The run that the job is."""
    chosen = job.chosen
    return eval_spec(job.config, chosen.source, job.verify, job.dataset, chosen.target)


def following(session: Session, job: EvalJob) -> Session:
    """The session; for a re-judgement whose source was played on since, one that begins it anew.

    What was judged before is not judged again: verdicts belong to rollouts.
    """
    store, source = session.store, job.chosen.rejudge
    found = store.read(runs.find, job.chosen.target.name)
    if source is None or found is None or found.head_branch is None:
        return session
    judged = store.read(steps.on_line, store.read(branches.load, found.head_branch))
    there = {row.plan: row.played_by or row.branch_id for row in store.read(steps.on_line, source)}
    if not judged or {row.plan: row.played_by for row in judged} == there:
        return session
    session.emit(
        Notice(f"{source.run} has changed since it was scored as {found.name}: begun anew")
    )
    return replace(session, restart_step=0, again=True)


def planned(
    session: Session, job: EvalJob, branch: Branch, rows: Sequence[StepRow]
) -> tuple[list[PlannedStep], list[str]]:
    """The steps it should have: what is planned may grow, and nothing of it may be missing.

    Raises:
        FingerprintError: A sample is missing, or fewer rollouts are asked for than planned.
    """
    if job.chosen.rejudge is not None:
        return [], []
    own = [row.plan for row in rows if row.branch_id == branch.id]
    notices = check_plan(session.store, branch, job.dataset, [i for p in own for i, _ in p.slots])
    attempts = max((k for plan in own for _, k in plan.slots), default=0)
    if job.config.pass_k < attempts:
        raise FingerprintError(
            f"{branch.run} has {attempts} rollouts per question; their number can only grow",
            [Change(FEWER, attempts, job.config.pass_k)],
            hint="undo the change, or give the evaluation another exp_id",
        )
    stored = [row.plan for row in rows]
    if stored and branch.dataset_id != job.dataset.id:  # the samples it planned, no others
        ids = [i for plan in stored for i, _ in plan.slots]
    else:
        ids = session.store.read(datasets.sample_ids, job.dataset.id)[: job.limit]
    wanted = plan_eval(ids, batch_size=job.config.batch_size, attempts=job.config.pass_k)
    return grown(stored, wanted), notices


def grown(stored: Sequence[PlannedStep], wanted: Sequence[PlannedStep]) -> list[PlannedStep]:
    """Every step of both; each has all questions of both, and as many attempts as the more."""
    have = {plan.step: plan for plan in stored}
    steps = have | {plan.step: plan for plan in wanted}
    for step in have.keys() & {plan.step for plan in wanted}:
        both = zip_longest(have[step].slots, steps[step].slots, fillvalue=(0, 0))
        slots = tuple(max(pair) for pair in both)  # the same sample, so the more attempts
        steps[step] = replace(have[step], slots=slots)
    return list(steps.values())


def steps_of(session: Session, job: EvalJob, branch: Branch) -> list[StepRow]:
    """The steps of the evaluation, or of the one whose rollouts it scores again."""
    if job.chosen.rejudge is not None:
        return session.store.plan_rejudge(
            branch, session.store.read(steps.on_line, job.chosen.rejudge)
        )
    return session.store.read(steps.on_line, branch)


def _begun(
    session: Session, run: OpenRun, rows: Sequence[StepRow], *, simulated: bool
) -> RunStarted:
    total = sum(row.plan.rollouts for row in rows)
    done = sum(session.store.read(scores.settled_counts, run.branch).values())
    return RunStarted(run.branch.run, run.branch.id, len(rows), total, done, simulated)


async def _play(session: Session, job: EvalJob, run: OpenRun, rows: Sequence[StepRow]) -> None:
    config = job.config
    models = Models(
        run.ledger,
        run.emit,
        concurrency=(config.concurrency, config.judge_concurrency),
        admission=session.admission,
        prices=config.prices,
    )
    spec = PlayerSpec(
        agent=config.agent,
        base_dir=job.chosen.source.base_dir,
        student=config.student,
        judge=config.judge,
        verify=job.verify,
        run_seed=config.seed,
        task_timeout_s=job.chosen.limits.task_timeout,
        only_scores=job.chosen.rejudge is not None,
    )
    async with models, open_player(spec, session, run, models) as (player, _):
        evaluation = Evaluation(
            branch=run.branch,
            player=player,
            system=system_prompt(config.agent.agent.instructions, job.chosen.target.library),
            library=job.chosen.target.library,
            concurrency=config.concurrency,
            max_failed_share=job.chosen.limits.max_failed_share,
            land=session.admission.land,
            pilot=job.pilot,
            limit=job.limit,
        )
        await evaluate(evaluation, session.store, rows, run.emit)
