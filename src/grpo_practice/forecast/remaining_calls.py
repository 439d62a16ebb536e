"""A run, or what is left of it: the calls it has still to make, and what they will take."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from grpo_practice.app import evaluation_run, practice_run
from grpo_practice.app.evaluation_run import EvalJob
from grpo_practice.app.practice_run import PracticeJob
from grpo_practice.app.session import Plan, Session
from grpo_practice.calls import Stage
from grpo_practice.canonical import text_sha
from grpo_practice.config.schema.runs import EvalConfig
from grpo_practice.evaluate import unfinished
from grpo_practice.events import Notice
from grpo_practice.forecast.estimate import (
    Forecast,
    Line,
    Remaining,
    forecast_line,
    transcript_tokens,
)
from grpo_practice.forecast.range import ONE, Range
from grpo_practice.forecast.requests_per_rollout import Turns, turns_of
from grpo_practice.forecast.shares import reads_of, share_of, summarised_share
from grpo_practice.llm.prices import Prices
from grpo_practice.practice.group_policy import group_policy
from grpo_practice.prompts.system import system_prompt
from grpo_practice.reports.run_reports import EvalReport, PracticeReport
from grpo_practice.store import Store, branches, datasets, libraries, steps
from grpo_practice.store.queries import runs, scores, spending
from grpo_practice.store.records import Branch, RunSpec, StepRow
from grpo_practice.store.run_names import eval_name, library_variant
from grpo_practice.types import Library
from grpo_practice.verify.resolve import VerifyFunction

SAMPLED = 200
"""Questions whose length stands for all."""


def forecast_practice(session: Session, job: PracticeJob) -> Forecast:
    """What is left of a practice run, the evaluations on its way included.

    The run, its branch and its plan are there afterwards, so the store is a rehearsal or has them.

    Raises: what beginning the run does.
    """
    store, config = session.store, job.config
    spec = practice_run.spec_of(job)
    branch = _begun(session, spec, partial(practice_run.planned, session, job))
    rows = [row for row in store.read(steps.on_line, branch) if not row.closed]
    share, groups = share_of(store, branch.run, truth=config.practice.given_ground_truth)
    learning = _learning(store, job, branch, share)
    left = _practice_calls(store, job, branch, rows, share, learning)
    left += _evaluations(session, job, branch, learning)
    turns = turns_of(store, spec, config.evaluation.agent, _plays(left))
    return Forecast(
        run=spec.name,
        simulated=spec.simulated,
        lines=_lines(store, config.evaluation, spec.name, left, turns),
        turns=turns,
        learnable=ceil(learning.most - len(learning.now)),
        waits=len(rows),
        share=share,
        groups=groups,
        account=session.admission.account,
    )


def forecast_eval(session: Session, job: EvalJob) -> Forecast:
    """What is left of an evaluation. See `forecast_practice`."""
    session = evaluation_run.following(session, job)
    spec = evaluation_run.spec_of(job)
    branch = _begun(session, spec, partial(evaluation_run.planned, session, job))
    rows = [row for row in evaluation_run.steps_of(session, job, branch) if unfinished(row)]
    played = sum(row.plan.rollouts for row in rows if row.played_by is not None)
    missing = _missing(session.store, branch, rows)
    asked = 0 if played else missing
    left = _scored(job.config, job.verify, Range(asked, asked), Range(missing, missing))
    library = job.chosen.target.library
    left = _told(session.store, job.dataset.id, job.config, library, len(library), left)
    turns = turns_of(session.store, spec, job.config.agent, _plays(left))
    return Forecast(
        run=spec.name,
        simulated=spec.simulated,
        lines=_lines(session.store, job.config, spec.name, left, turns),
        turns=turns,
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
        return await practice_run.run_practice(session, job)
    mark = session.store.read(spending.newest_ids)
    await practice_run.play_pilot(session, job, pilot)
    did = session.store.read(spending.work_since, practice_run.spec_of(job).name, mark)
    return replace(forecast_practice(_gone_on(session), job), pilot=pilot, piloted=did)


async def evaluate(
    session: Session, job: EvalJob, *, dry_run: bool, pilot: int | None
) -> EvalReport | Forecast:
    """The same of an evaluation; its pilot asks the first of the questions that are left.

    Raises: as `evaluation.run_eval` does.
    """
    if dry_run:
        return forecast_eval(session, job)
    if pilot is None:
        return await evaluation_run.run_eval(session, job)
    mark = session.store.read(spending.newest_ids)
    await evaluation_run.play_pilot(session, job, pilot)
    did = session.store.read(spending.work_since, evaluation_run.spec_of(job).name, mark)
    return replace(forecast_eval(_gone_on(session), job), pilot=pilot, piloted=did)


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


def _plays(left: Sequence[Remaining]) -> float:
    """Rollouts that are still to be played, at most."""
    return sum(x.calls.high for x in left if x.stage == "play")


def _lines(
    store: Store,
    config: EvalConfig,
    run: str,
    left: Sequence[Remaining],
    turns: Turns | None,
) -> list[Line]:
    """Of each stage; until here the calls that play were one for each rollout."""
    each, prices = turns.each if turns else ONE, Prices(config.prices)
    long = transcript_tokens(config.agent.model, each)
    told = (
        replace(x, calls=x.calls.times(each), turns=each)
        if x.stage == "play"
        else replace(x, reads=min(x.reads, x.transcripts * long))
        for x in left
    )
    return [forecast_line(store, prices, run, x) for x in told if x.calls.high > 0]


@dataclass(frozen=True, slots=True)
class _Learning:
    """How the library may grow in the steps that are not closed."""

    now: Library
    after: dict[int, float]
    """Step → experiences that there may be after it, at most."""
    shown: float
    """Experiences in the prompts of these steps, at most; the mean over their rollouts."""

    @property
    def most(self) -> float:
        """Experiences at the end of the run, at most."""
        return max(self.after.values(), default=len(self.now))


def _learning(store: Store, job: PracticeJob, branch: Branch, share: Range) -> _Learning:
    """Every group that teaches may add as many experiences as it may have lessons."""
    now, after, shown, rollouts = branch.library, dict[int, float](), 0.0, 0
    rows = store.read(steps.on_line, branch)
    for row in rows:
        now = store.read(libraries.load, row.library_out) if row.closed else now
    most = float(len(now))
    each = share.high * job.config.practice.num_experiences_per_query
    for row in rows:
        if not row.closed:
            shown += most * row.rollouts
            rollouts += row.rollouts
            most += each * row.groups
            after[row.plan.step] = most
    return _Learning(now, after, shown / rollouts if rollouts else most)


def _practice_calls(
    store: Store,
    job: PracticeJob,
    branch: Branch,
    rows: Sequence[StepRow],
    share: Range,
    learning: _Learning,
) -> list[Remaining]:
    """Of the steps that are not closed; what the ledger has of them already is not made again."""
    config, settings = job.config, job.config.practice
    at_once, most = settings.rollout_concurrency, _missing(store, branch, rows)
    undecided = sum(row.groups for row in rows if row.plan.epoch and row.left_out is None)
    left_out = group_policy(settings).most_left_out(undecided)
    played = Range(max(most - left_out * settings.grpo_n, 0), most)
    student = practice_run.at_practice(config)
    left = [Remaining("practice", "play", student, played, at_once)]
    left += [
        replace(x, part="practice")
        for x in _scored(config.evaluation, job.verify, played)
        if x.stage == "judge"
    ]
    groups = sum(row.groups for row in rows)
    taught = share.times(Range(groups - left_out, groups))
    calls: dict[Stage, Range] = {
        "summarise": taught.times(Range(settings.grpo_n, settings.grpo_n)).times(
            summarised_share(store, branch, settings)
        ),
        "compare": taught,
        "propose": Range(0, taught.high),  # a group that only confirms proposes nothing
        "merge": Range(0, len(rows)),  # nor is a merge asked for where nothing may pass
    }
    made = _made(store, branch, rows)
    teacher = config.teacher
    for stage, wanted in calls.items():
        new = Range(max(wanted.low - made[stage], 0.0), max(wanted.high - made[stage], 0.0))
        x = Remaining("practice", stage, teacher, new, 1 if stage == "merge" else at_once)
        if stage == "compare" and settings.summaries != "always":
            x = replace(x, transcripts=settings.grpo_n, reads=reads_of(config))
        left.append(x)
    shown = learning.shown
    return _told(store, job.dataset.id, config.evaluation, learning.now, shown, left)


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
        judged_range = Range(least, asked.high)
        left.append(
            Remaining("evaluation", "judge", config.judge, judged_range, config.judge_concurrency)
        )
    return left


def _missing(store: Store, branch: Branch, rows: Sequence[StepRow]) -> int:
    """How many of the rollouts that these steps plan, at most, are not settled yet."""
    there = store.read(scores.settled_counts, branch)
    return sum(row.rollouts - there.get(row.plan.step, 0) for row in rows)


def _evaluations(
    session: Session, job: PracticeJob, branch: Branch, learning: _Learning
) -> list[Remaining]:
    """The evaluations of libraries, made and to come; one that is there is not made again."""
    store, settings = session.store, job.config.practice
    rows = store.read(steps.on_line, branch)
    left = list[Remaining]()
    if job.tests is not None:
        tested = practice_run.due(settings, rows)
        wanted = [row for row in rows if row.plan.step in tested]
        left += _on_the_way(store, job.tests, None, wanted, (), learning)
    if job.selects is not None:
        variant = (practice_run.select_variant(settings.select_dataset or ""),)
        start = job.start or Library()
        left += _on_the_way(store, job.selects, start, rows, variant, learning)
    return _together(left)


def _on_the_way(
    store: Store,
    job: EvalJob,
    start: Library | None,
    rows: Sequence[StepRow],
    variants: Sequence[str],
    learning: _Learning,
) -> list[Remaining]:
    """The evaluations of the library before the first step, where wanted, and after these steps.

    A step may leave the library as it was; then there is nothing to play.
    """
    left = list[Remaining]()
    known = set[str]()
    prefix = eval_name(job.config.exp_id)
    evaluated = any(row.name.startswith(f"{prefix}/") for row in store.read(runs.all_runs))
    wanted = [(start, float(len(start)))] if start is not None else []
    made = [(_made_by(store, row), learning.after.get(row.plan.step, 0.0)) for row in rows]
    for library, most in [*wanted, *made]:
        shown = learning.now if library is None else library
        name = eval_name(job.config.exp_id, library_variant(shown), *variants)
        if library is None:
            n = _planned(job)
            found = known or evaluated
            new = Range(0 if found else n, n)
        else:
            n = 0 if name in known else _of_evaluation(store, job, name)
            new = Range(n, n)
            most = len(library)
        known.add(name)
        scored = _scored(job.config, job.verify, new)
        left += _told(store, job.dataset.id, job.config, shown, most, scored)
    return left


def _made_by(store: Store, row: StepRow) -> Library | None:
    """The library that the step made; None while it has not."""
    return store.read(libraries.load, row.library_out) if row.closed else None


def _of_evaluation(store: Store, job: EvalJob, name: str) -> int:
    """How many rollouts the evaluation of this name has still to play."""
    found = store.read(runs.find, name)
    if found is None or found.head_branch is None:
        return _planned(job)
    branch = store.read(branches.load, found.head_branch)
    return _missing(store, branch, store.read(steps.on_line, branch))


def _planned(job: EvalJob) -> int:
    return min(job.limit or job.dataset.n, job.dataset.n) * job.config.pass_k


def _together(left: Sequence[Remaining]) -> list[Remaining]:
    """One line for each stage; the experiences in its prompts are the mean over all its calls."""
    found = dict[str, Remaining]()
    for x in left:
        known = found.get(x.stage)
        if known is None:
            found[x.stage] = x
            continue
        calls = known.calls.plus(x.calls)
        shown = known.calls.high * known.experiences + x.calls.high * x.experiences
        mean = shown / calls.high if calls.high else 0.0
        found[x.stage] = replace(known, calls=calls, experiences=mean)
    return list(found.values())


def _told(
    store: Store,
    dataset_id: int,
    config: EvalConfig,
    library: Library,
    experiences: float,
    left: Sequence[Remaining],
) -> list[Remaining]:
    """The same, with what is known of the prompts: how long they are and how long they may get."""
    lengths = [len(s.question) for s in store.read(datasets.samples, dataset_id, most=SAMPLED)]
    told = system_prompt(config.agent.agent.instructions, library)
    chars = len(told) + sum(lengths) / max(len(lengths), 1)
    system = text_sha(told)
    return [
        replace(x, chars=chars, held=len(library), experiences=experiences, system=system)
        if x.stage == "play"
        else replace(x, experiences=experiences if x.part == "practice" else 0.0, system=system)
        for x in left
    ]
