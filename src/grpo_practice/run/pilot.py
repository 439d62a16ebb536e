"""Forecasts of any job, also after a pilot: play a small part of it, and keep the rollouts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from grpo_practice.llm.prices import Prices
from grpo_practice.run import evaluation_run, practice_run
from grpo_practice.run.arms import ArmsJob, with_direct
from grpo_practice.run.evaluation_run import EvalJob
from grpo_practice.run.forecast.estimate import Forecast, Line, StageCalls, forecast_line
from grpo_practice.run.forecast.range import ONE
from grpo_practice.run.forecast.remaining_calls import forecast
from grpo_practice.run.practice_run import PracticeJob
from grpo_practice.store.queries import spending


def forecast_arms(job: ArmsJob) -> Forecast:
    """Return the remaining work of all arms; each line names its arm."""
    store, direct = job.session.store, job.direct
    if direct is not None:
        # The library of `direct` is not written yet. Assume that it will be as long as `full`.
        stand_in = job.evaluations["direct"]
        spec = replace(stand_in.spec, name=f"{stand_in.spec.name}/direct")
        # Set `again`, because stored answers with the library of `full` do not count for `direct`.
        afresh = replace(job.session, again=True)
        stand_in = replace(stand_in, spec=spec, session=afresh)
        evaluations = {**job.evaluations, "direct": stand_in}
        job = replace(job, evaluations=evaluations)
    parts = {arm: forecast(evaluation) for arm, evaluation in job.evaluations.items()}
    lines = [replace(line, part=arm) for arm, part in parts.items() for line in part.stages]
    if direct is not None:
        config = direct.loaded.config
        asked = StageCalls("practice", "direct", config.teacher, ONE, 1)
        prices = Prices(config.evaluation.prices)
        lines.append(forecast_line(store, prices, direct.learnt.run, asked))
    return together(parts, lines)


def together(parts: Mapping[str, Forecast], lines: Sequence[Line]) -> Forecast:
    """Return the forecast of runs that are played together, with the given lines."""
    first, *_ = parts.values()
    several = [part.turns for part in parts.values() if part.turns is not None]
    return replace(
        first,
        run=" ".join(part.run for part in parts.values() if part.stages) or first.run,
        simulated=any(part.simulated for part in parts.values()),
        stages=lines,
        turns=max(several, key=lambda turns: turns.each.high, default=None),
    )


async def run_pilot(job: PracticeJob | EvalJob | ArmsJob, n: int) -> Forecast:
    """Play the first `n` remaining questions, keep them, and return the work that then remains.

    The full run reuses these rollouts. In a practice run, they are groups of its next step; in a
    job with several evaluations, each plays `n` questions.
    """
    store = job.session.store
    mark = store.read(spending.newest_ids)  # rows with higher IDs will be the pilot's
    begun = replace(job.session, restart_step=None, again=False)  # resume the pilot's branch
    rest: PracticeJob | EvalJob | ArmsJob
    if isinstance(job, PracticeJob):
        names, rest = [job.spec.name], replace(job, session=begun)
        await practice_run.pilot_practice(job, n)
    elif isinstance(job, ArmsJob):
        job = await with_direct(job)
        names = [evaluation.spec.name for evaluation in job.evaluations.values()]
        jobs = {arm: replace(one, session=begun) for arm, one in job.evaluations.items()}
        rest = replace(job, session=begun, evaluations=jobs)
        await evaluation_run.pilot_evals(list(job.evaluations.values()), n)
    else:
        names, rest = [job.spec.name], replace(job, session=begun)
        await evaluation_run.pilot_evals([job], n)
    did = store.read(spending.work_since, names, mark)
    return replace(forecast_of(rest), pilot=n, piloted=did)


def forecast_of(job: PracticeJob | EvalJob | ArmsJob) -> Forecast:
    """Return the forecast of the rest of a job; see `forecast` and `forecast_arms`."""
    return forecast_arms(job) if isinstance(job, ArmsJob) else forecast(job)
