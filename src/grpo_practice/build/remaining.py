"""A run, or what is left of it: the calls it has still to make, and what they will take."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import sqrt

from grpo_practice.build import evaluation, practice
from grpo_practice.build.evaluation import EvalJob
from grpo_practice.build.forecast import Forecast, Line, Range, Remaining, forecast_line
from grpo_practice.build.practice import PracticeJob
from grpo_practice.build.reports import EvalReport, PracticeReport
from grpo_practice.build.session import Plan, Session
from grpo_practice.build.specs import eval_name, library_variant
from grpo_practice.calls import Stage
from grpo_practice.config.models import EvalConfig
from grpo_practice.evaluate import unfinished
from grpo_practice.events import Notice
from grpo_practice.llm.prices import Prices
from grpo_practice.prompts.system import system_prompt
from grpo_practice.store import Store, branches, runs, scores, spending
from grpo_practice.store.records import Branch, RunSpec, StepRow
from grpo_practice.types import Library
from grpo_practice.verify.resolve import VerifyFunction

ASSUMED_SHARE = Range(0.1, 0.6)
"""Of groups that teach, in a run that has none yet."""
SAMPLED = 200
"""Questions whose length stands for all."""


def forecast_practice(session: Session, job: PracticeJob) -> Forecast:
    """What is left of a practice run, the evaluations on its way included.

    The run, its branch and its plan are there afterwards, so the store is a rehearsal or has them.

    Raises: what beginning the run does.
    """
    store, config = session.store, job.config
    spec = practice.spec_of(job)
    branch = _begun(session, spec, partial(practice.planned, session, job))
    rows = [row for row in store.steps(branch) if not row.closed]
    share, groups = _share(store, branch.run, truth=config.practice.given_ground_truth)
    left = [*_practice_calls(store, job, branch, rows, share), *_evaluations(session, job, branch)]
    return Forecast(
        run=spec.name,
        simulated=spec.simulated,
        lines=_lines(store, config.evaluation, left),
        steps=len(rows),
        share=share,
        groups=groups,
        account=session.admission.account,
    )


def forecast_eval(session: Session, job: EvalJob) -> Forecast:
    """What is left of an evaluation. See `forecast_practice`."""
    session = evaluation.following(session, job)
    spec = evaluation.spec_of(job)
    branch = _begun(session, spec, partial(evaluation.planned, session, job))
    rows = [row for row in evaluation.steps_of(session, job, branch) if unfinished(row)]
    played = sum(row.plan.rollouts for row in rows if row.played_by is not None)
    missing = _missing(session.store, branch, rows)
    asked = 0 if played else missing
    left = _scored(job.config, job.verify, Range(asked, asked), Range(missing, missing))
    chars = _chars(session.store, job.dataset.id, job.config, job.chosen.target.library)
    left = [replace(x, chars=chars) if x.stage == "play" else x for x in left]
    return Forecast(
        run=spec.name,
        simulated=spec.simulated,
        lines=_lines(session.store, job.config, left),
        account=session.admission.account,
    )


async def practise(
    session: Session, job: PracticeJob, *, dry_run: bool, pilot: int | None
) -> PracticeReport | Forecast:
    """The run is complete; or, in a dry run, what that takes; or so after a pilot.

    In a pilot the first groups of the next step are played. They are kept, so the run that goes
    on uses them.

    Raises: as `practice.run_practice` does.
    """
    if dry_run:
        return forecast_practice(session, job)
    if pilot is None:
        return await practice.run_practice(session, job)
    await practice.play_pilot(session, job, pilot)
    return replace(forecast_practice(_gone_on(session), job), pilot=pilot)


async def evaluate(
    session: Session, job: EvalJob, *, dry_run: bool, pilot: int | None
) -> EvalReport | Forecast:
    """The same of an evaluation; its pilot asks the first of the questions that are left.

    Raises: as `evaluation.run_eval` does.
    """
    if dry_run:
        return forecast_eval(session, job)
    if pilot is None:
        return await evaluation.run_eval(session, job)
    await evaluation.play_pilot(session, job, pilot)
    return replace(forecast_eval(_gone_on(session), job), pilot=pilot)


def _gone_on(session: Session) -> Session:
    """A session that goes on with the branch this one made."""
    return replace(session, restart_step=None, again=False)


def _begun(session: Session, spec: RunSpec, plan: Plan) -> Branch:
    """The branch that the command works on; what a person should know of it is said."""
    branch = session.store.begin(
        spec,
        lambda branch, rows: plan(branch, rows)[0],
        restart_step=session.restart_step,
        again=session.again,
    )
    for text in branch.notices:
        session.emit(Notice(text))
    return branch


def _lines(store: Store, config: EvalConfig, left: Sequence[Remaining]) -> list[Line]:
    prices = Prices(config.prices)
    return [forecast_line(store, prices, x) for x in left if x.calls.high > 0]


def _share(store: Store, run: str, *, truth: bool) -> tuple[Range, int]:
    """The share of groups that teach, and in how many groups it was counted."""
    groups, informative = store.read(spending.informative, run) if truth else (0, 0)
    if not groups:
        return ASSUMED_SHARE, 0
    # Agresti-Coull: also right where all groups taught, or none
    n = groups + 4
    share = (informative + 2) / n
    width = 2 * sqrt(share * (1 - share) / n)
    return Range(max(share - width, 0.0), min(share + width, 1.0)), groups


def _practice_calls(
    store: Store, job: PracticeJob, branch: Branch, rows: Sequence[StepRow], share: Range
) -> list[Remaining]:
    """Of the steps that are not closed; what the ledger has of them already is not made again."""
    config, settings = job.config, job.config.practice
    at_once, n = settings.rollout_concurrency, _missing(store, branch, rows)
    chars = _chars(store, job.dataset.id, config.evaluation, job.start or Library())
    student = practice.at_practice(config)
    left = [Remaining("practice", "play", student, Range(n, n), at_once, chars)]
    left += [
        replace(x, part="practice")
        for x in _scored(config.evaluation, job.verify, Range(n, n))
        if x.stage == "judge"
    ]
    groups = sum(len(row.plan.slots) for row in rows)
    taught = Range(share.low * groups, min(share.high, 1.0) * groups)
    calls: dict[Stage, Range] = {
        "summarise": taught.times(Range(settings.grpo_n, settings.grpo_n)),
        "compare": taught,
        "propose": taught,
        "merge": Range(len(rows) if taught.low >= len(rows) else 0, len(rows)),
    }
    made = _made(store, branch, rows)
    teacher = settings.teacher_model or config.evaluation.agent.model
    for stage, wanted in calls.items():
        new = Range(max(wanted.low - made[stage], 0.0), max(wanted.high - made[stage], 0.0))
        left.append(Remaining("practice", stage, teacher, new, 1 if stage == "merge" else at_once))
    return left


def _made(store: Store, branch: Branch, rows: Sequence[StepRow]) -> Counter[str]:
    steps = [row.plan.step for row in rows]
    return Counter(store.read(spending.calls_at, [branch.id, *branch.reuses], steps))


def _scored(
    config: EvalConfig, verify: VerifyFunction, rollouts: Range, judged: Range | None = None
) -> list[Remaining]:
    """The calls that play rollouts, and those that judge them where the function asks a model."""
    agent = config.agent.model
    left = [Remaining("evaluation", "play", agent, rollouts, config.concurrency)]
    if verify.is_judge:
        asked = judged or rollouts
        least = asked.low if verify.kind == "judge" else 0.0  # a function of the user's may not ask
        judge, at_once = config.judge_model or agent, config.judge_concurrency
        left.append(Remaining("evaluation", "judge", judge, Range(least, asked.high), at_once))
    return left


def _missing(store: Store, branch: Branch, rows: Sequence[StepRow]) -> int:
    """How many of the rollouts that these steps plan are not settled yet."""
    there = store.read(scores.there, branch)
    return sum(row.plan.rollouts - there.get(row.plan.step, 0) for row in rows)


def _evaluations(session: Session, job: PracticeJob, branch: Branch) -> list[Remaining]:
    """The evaluations of libraries, made and to come; one that is there is not made again."""
    store, settings = session.store, job.config.practice
    rows = store.steps(branch)
    wanted = list[tuple[EvalJob, Library | None, tuple[str, ...]]]()
    if job.tests is not None:
        tested = practice.due(settings, rows)
        wanted += [(job.tests, _made_by(store, r), ()) for r in rows if r.plan.step in tested]
    if job.selects is not None:
        variant = (practice.select_variant(settings.select_dataset or ""),)
        wanted += [(job.selects, job.start or Library(), variant)]
        wanted += [(job.selects, _made_by(store, row), variant) for row in rows]
    left = list[Remaining]()
    for evaluated, library, variants in wanted:
        n = _of_evaluation(store, evaluated, library, variants)
        scored = _scored(evaluated.config, evaluated.verify, Range(n, n))
        chars = _chars(store, evaluated.dataset.id, evaluated.config, library or Library())
        left += [replace(x, chars=chars) if x.stage == "play" else x for x in scored]
    return _together(left)


def _made_by(store: Store, row: StepRow) -> Library | None:
    """The library that the step made; None while it has not."""
    return store.library(row.library_out) if row.closed else None


def _of_evaluation(
    store: Store, job: EvalJob, library: Library | None, variants: Sequence[str]
) -> int:
    """How many rollouts the evaluation of a library has still to play; None: one yet to be made."""
    planned = min(job.limit or job.dataset.n, job.dataset.n) * job.config.pass_k
    if library is None:
        return planned
    name = eval_name(job.config.exp_id, library_variant(library), *variants)
    found = store.read(runs.find, name)
    if found is None or found.head_branch is None:
        return planned
    branch = store.read(branches.load, found.head_branch)
    return _missing(store, branch, store.steps(branch))


def _together(left: Sequence[Remaining]) -> list[Remaining]:
    """One line for each stage."""
    found = dict[str, Remaining]()
    for x in left:
        known = found.get(x.stage)
        found[x.stage] = x if known is None else replace(known, calls=known.calls.plus(x.calls))
    return list(found.values())


def _chars(store: Store, dataset_id: int, config: EvalConfig, library: Library) -> float:
    """Characters of a typical request that plays a rollout."""
    lengths = [len(s.question) for s in islice(store.samples(dataset_id), SAMPLED)]
    told = system_prompt(config.agent.agent.instructions, library)
    return len(told) + sum(lengths) / max(len(lengths), 1)
