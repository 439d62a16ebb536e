"""Remaining calls of a run, and their forecast."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from grpo_practice.config.schema.runs import EvalConfig
from grpo_practice.core.hashing import text_sha
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.core.stages import STAGES, distillation
from grpo_practice.core.types import Library
from grpo_practice.llm.prices import Prices
from grpo_practice.rollout.evaluate import unfinished
from grpo_practice.run import evaluated_steps, evaluation_run, practice_run
from grpo_practice.run.evaluation_run import EvalJob
from grpo_practice.run.forecast.estimate import (
    Forecast,
    Line,
    StageCalls,
    forecast_line,
    transcript_tokens,
)
from grpo_practice.run.forecast.power import PlannedPower, planned_power
from grpo_practice.run.forecast.range import ONE, Range
from grpo_practice.run.forecast.shares import (
    RolloutRequests,
    reads_of,
    rollout_requests,
    share_of,
    summarised_share,
)
from grpo_practice.run.practice_run import PracticeJob
from grpo_practice.run.session import foreseen
from grpo_practice.run.specs import at_practice
from grpo_practice.store import Store, branches, datasets, libraries, steps
from grpo_practice.store.queries import arms, looks, runs, scores, spending
from grpo_practice.store.records import EFFECT, Branch, RunSpec, StepRow
from grpo_practice.verify.resolve import VerifyFunction

SAMPLED = 200
"""Number of questions whose mean length is used for all questions."""


def forecast(job: PracticeJob | EvalJob) -> Forecast:
    """Return the remaining work of a run, including the evaluations during a practice run.

    Nothing is written.

    Raises: The errors that starting the run would raise.
    """
    return _of_practice(job) if isinstance(job, PracticeJob) else _of_eval(job)


def _of_practice(job: PracticeJob) -> Forecast:
    store, config = job.session.store, job.config
    spec = job.spec
    with job.start_named():
        branch, rows = foreseen(job.session, spec, partial(practice_run.planned, job))
    open_ = [row for row in rows if not row.closed]
    share, groups = share_of(store, branch, rows, config)
    if job.recorded is not None and open_:
        groups = sum(row.groups for row in open_)
        share = Range(1 - job.recorded.unknown(open_) / groups, 1.0)
    learning = _learning(store, job, branch, rows, share)
    left = _practice_calls(store, job, branch, open_, share, learning)
    left += _evaluations(job, branch, rows, learning)
    turns = rollout_requests(store, spec, config.evaluation.agent, _plays(left))
    return Forecast(
        run=spec.name,
        simulated=spec.simulated,
        stages=_lines(store, config.evaluation, spec, left, turns),
        turns=turns,
        learnable=ceil(learning.most - len(learning.now)),
        waits=len(open_),
        share=share,
        groups=groups,
        account=job.session.admission.account,
        power=_power(job.tests) if job.tests else None,
    )


def _of_eval(job: EvalJob) -> Forecast:
    job = evaluation_run.following(evaluation_run.lent(job))
    store, spec = job.session.store, job.spec
    branch, rows = foreseen(job.session, spec, partial(evaluation_run.planned, job))
    if job.source is not None:
        there = {row.plan.step for row in rows}
        to_judge = evaluation_run.to_judge(job, job.source)
        rows += [row for row in to_judge if row.plan.step not in there]
    rows = [row for row in rows if unfinished(row)]
    played = sum(row.plan.rollouts for row in rows if row.played_by is not None)
    missing = _missing(store, branch, rows)
    # Rollouts played by another run are only scored, and requests that another run has sent are
    # not sent again.
    to_play = 0 if played else missing - _lent(store, branch, rows)
    left = _scored(job.config, job.verify, Range(to_play, to_play), Range(missing, missing))
    library = job.spec.library
    if job.spec.purpose == EFFECT:  # each attempt sees half of the library
        library = replace(library, experiences=library.experiences[::2])
    left = _prompts(store, job.dataset.id, job.config, library, len(library), left)
    turns = rollout_requests(store, spec, job.config.agent, _plays(left))
    return Forecast(
        run=spec.name,
        simulated=spec.simulated,
        stages=_lines(store, job.config, spec, left, turns),
        turns=turns,
        account=job.session.admission.account,
        power=_power(job),
    )


def _power(job: EvalJob) -> PlannedPower:
    config, store = job.config, job.session.store
    questions = evaluation_run.wanted_rollouts(job) // config.pass_k
    ids = {*store.read(datasets.sample_ids, job.dataset.id, most=job.limit)} - job.unscorable
    sizes = store.read(arms.family_sizes, ids)
    simulated = job.spec.simulated
    look = store.read(looks.next_look, config.exp_id, simulated, ids)
    return planned_power(store, config.exp_id, questions, config.pass_k, sizes, look.level)


def _plays(left: Sequence[StageCalls]) -> float:
    """Return the maximum number of rollouts still to be played."""
    return sum(x.calls.high for x in left if x.stage == "play")


def _lines(
    store: Store,
    config: EvalConfig,
    spec: RunSpec,
    left: Sequence[StageCalls],
    turns: RolloutRequests | None,
) -> list[Line]:
    """Return the forecast for each stage, after converting remaining rollouts to calls."""
    each, prices = turns.each if turns else ONE, Prices(config.prices)
    long = transcript_tokens(config.agent.model, each)
    with_turns = (
        replace(x, calls=x.calls.times(each), turns=each)
        if x.stage == "play"
        else replace(x, reads=min(x.reads, x.transcripts * long))
        for x in left
    )
    return [
        forecast_line(store, prices, spec.name, x, spec.identity)
        for x in with_turns
        if x.calls.high > 0
    ]


@dataclass(frozen=True, slots=True)
class _Learning:
    """Growth of the library in the open steps."""

    now: Library
    after: dict[int, float]
    """Step → upper bound on the number of experiences after it."""
    shown: float
    """Upper bound on the experiences in the prompts of these steps, averaged over rollouts."""

    @property
    def most(self) -> float:
        """Upper bound on the number of experiences at the end of the run."""
        return max(self.after.values(), default=len(self.now))


def _learning(
    store: Store, job: PracticeJob, branch: Branch, rows: Sequence[StepRow], share: Range
) -> _Learning:
    """Return the growth if every group that teaches adds the maximum number of lessons."""
    closed = [row.library_out for row in rows if row.closed]
    now = store.read(libraries.load, closed[-1]) if closed else branch.library
    after, shown, rollouts = dict[int, float](), 0.0, 0
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
) -> list[StageCalls]:
    """Return the calls of the open steps, except calls already in the ledger.

    The number of rollouts per group comes from the plan of the branch, because a run keeps its
    initial plan.
    """
    config, settings = job.config, job.config.practice
    at_once, most = settings.rollout_concurrency, _missing(store, branch, rows)
    groups, planned = sum(row.groups for row in rows), sum(row.rollouts for row in rows)
    attempts = planned / groups if groups else 0.0
    if job.recorded is not None:  # those with a reward are not stored before the run begins
        most = min(most, job.recorded.to_score(rows))
    played = Range(most, most)
    to_play = Range() if job.recorded else played
    student = at_practice(config)
    each = Range(len(rows), len(rows))
    left = [StageCalls("practice", "play", student, to_play, at_once, batches=each)]
    left += [
        replace(x, part="practice", batches=each.times(x.batches))
        for x in _scored(config.evaluation, job.verify, played)
        if x.stage == "judge"
    ]
    taught = share.times(Range(groups, groups))
    units = {
        "attempt": taught.times(Range(attempts, attempts)),
        "group": taught,
        "step": Range(len(rows), len(rows)),
    }
    numbers = [row.plan.step for row in rows]
    # Calls of the branches that a restart replaced count, too, because the new branch reuses them.
    made = Counter(store.read(spending.calls_at, [branch.id, *branch.reuses], numbers))
    for stage in distillation():
        spec = STAGES[stage]
        wanted = units[spec.per] if spec.always else Range(0, units[spec.per].high)
        if stage == "summarise":
            wanted = wanted.times(summarised_share(store, branch, settings))
        new = Range(max(wanted.low - made[stage], 0.0), max(wanted.high - made[stage], 0.0))
        # Requests about a whole step wait for all of its groups, and for each other.
        together = 1 if spec.per == "step" else at_once
        some = Range(min(new.low, 1.0), len(rows))
        x = StageCalls("practice", stage, config.teacher, new, together, batches=some)
        if stage == "compare" and settings.summaries != "always":
            shown = max((n for row in rows for _, n in row.plan.slots), default=0)
            x = replace(x, transcripts=shown, reads=reads_of(config))
        left.append(x)
    return _prompts(store, job.dataset.id, config.evaluation, learning.now, learning.shown, left)


def _scored(
    config: EvalConfig, verify: VerifyFunction, rollouts: Range, judged: Range | None = None
) -> list[StageCalls]:
    """Return the calls to play rollouts, and the judge's calls if there is a judge."""
    agent = config.agent.model
    left = [StageCalls("evaluation", "play", agent, rollouts, config.concurrency)]
    if verify.is_judge:
        most = judged or rollouts
        least = most.low if verify.kind == "judge" else 0.0  # a user's function may call no model
        calls, at_once = Range(least, most.high), config.judge_concurrency
        batches = Range() if verify.asks_judge else ONE
        asked = StageCalls("evaluation", "judge", config.judge, calls, at_once, batches=batches)
        left.append(asked)
    return left


def _missing(store: Store, branch: Branch, rows: Sequence[StepRow]) -> int:
    """Return the maximum number of planned rollouts in these steps that are not settled yet."""
    return sum(row.rollouts - store.read(scores.settled, branch.verifier_id, row) for row in rows)


def _lent(store: Store, branch: Branch, rows: Sequence[StepRow]) -> int:
    """Return the number of unsettled rollouts whose answers another run has already stored."""
    asked = Counter[int]()
    for lender in branch.reuses:
        lent = store.read(branches.load, lender)
        # Take the maximum, not the sum, because lenders may hold the same answers.
        asked |= Counter(store.read(scores.settled_counts, lent, unscored=True))
    return sum(min(_missing(store, branch, [row]), asked[row.plan.step]) for row in rows)


def _evaluations(
    job: PracticeJob, branch: Branch, rows: Sequence[StepRow], learning: _Learning
) -> list[StageCalls]:
    """Return the remaining calls to evaluate libraries, counting each evaluation once."""
    settings = job.config.practice
    rows_left = any(not row.closed for row in rows)
    left = list[StageCalls]()
    if job.tests is not None:
        tested = evaluated_steps.due(settings, rows)
        wanted = [row for row in rows if row.plan.step in tested]
        due = rows_left and practice_run.needs_baseline(job, branch)
        baseline = {job.tests.spec.name: Library()} if due else {}
        left += _on_the_way(job.tests, baseline, wanted, learning)
    if job.selects is not None:
        start = job.start or Library()
        name = evaluated_steps.library_run(job.selects, start)
        steps_chosen = evaluated_steps.chosen_among(settings, rows)
        wanted = [row for row in rows if row.plan.step in steps_chosen]
        left += _on_the_way(job.selects, {name: start}, wanted, learning)
    return _together(left)


def _on_the_way(
    job: EvalJob,
    first: Mapping[str, Library],
    rows: Sequence[StepRow],
    learning: _Learning,
) -> list[StageCalls]:
    """Return the calls to evaluate the given libraries first, then the library of each step.

    A step that leaves its library unchanged needs no calls, because the answers are already stored,
    possibly from an evaluation without a library.
    """
    store, left = job.session.store, list[StageCalls]()
    made = [store.read(libraries.load, row.library_out) for row in rows if row.closed]
    named = dict(first)
    for library in made:
        named.setdefault(evaluated_steps.library_run(job, library), library)
    for name, library in named.items():
        n = _of_evaluation(store, job, name)
        scored = _scored(job.config, job.verify, Range(n, n))
        left += _prompts(store, job.dataset.id, job.config, library, len(library), scored)
    for row in (row for row in rows if not row.closed):
        # The step may leave the library as it is, which costs nothing.
        scored = _scored(job.config, job.verify, Range(0, evaluation_run.wanted_rollouts(job)))
        most = learning.after.get(row.plan.step, 0.0)
        left += _prompts(store, job.dataset.id, job.config, learning.now, most, scored)
    return left


def _of_evaluation(store: Store, job: EvalJob, name: str) -> int:
    """Return the number of rollouts that the evaluation with this name still has to play."""
    branch = store.read(runs.newest_branch, name)
    if branch is None:
        return evaluation_run.wanted_rollouts(job)
    planned = sum(row.rollouts for row in store.read(steps.on_line, branch))
    settled = sum(store.read(scores.settled_counts, branch).values())
    return max(evaluation_run.wanted_rollouts(job), planned) - settled  # plans only grow


def _together(left: Sequence[StageCalls]) -> list[StageCalls]:
    """Return one entry per stage, with the number of experiences averaged over all its calls."""
    found = dict[str, StageCalls]()
    for x in left:
        known = found.get(x.stage)
        if known is None:
            found[x.stage] = x
            continue
        calls = known.calls.plus(x.calls)
        shown = known.calls.high * known.experiences + x.calls.high * x.experiences
        mean = shown / calls.high if calls.high else 0.0
        batches = known.batches.plus(x.batches)
        found[x.stage] = replace(known, calls=calls, experiences=mean, batches=batches)
    return list(found.values())


def _prompts(
    store: Store,
    dataset_id: int,
    config: EvalConfig,
    library: Library,
    experiences: float,
    left: Sequence[StageCalls],
) -> list[StageCalls]:
    """Return the calls, annotated with the known facts about their prompts.

    The known facts are the current length and the expected number of experiences.
    """
    lengths = [len(s.question) for s in store.read(datasets.samples, dataset_id, most=SAMPLED)]
    prompt = system_prompt(config.agent.agent.instructions, library)
    chars = len(prompt) + sum(lengths) / max(len(lengths), 1)
    system = text_sha(prompt)
    return [
        replace(x, chars=chars, held=len(library), experiences=experiences, system=system)
        if x.stage == "play"
        else replace(x, experiences=experiences if x.part == "practice" else 0.0, system=system)
        for x in left
    ]
