"""A pilot: a little of a run is played and kept, and the rest of it forecast."""

from dataclasses import replace

from grpo_practice.app import evaluation_run, practice_run
from grpo_practice.app.arms import ArmsJob, with_direct
from grpo_practice.app.effect_run import EffectJob
from grpo_practice.app.evaluation_run import EvalJob
from grpo_practice.app.practice_run import PracticeJob
from grpo_practice.app.session import Session
from grpo_practice.forecast.arms import forecast_arms
from grpo_practice.forecast.effect import forecast_effect
from grpo_practice.forecast.estimate import Forecast
from grpo_practice.forecast.remaining_calls import forecast
from grpo_practice.store.queries import spending


async def run_pilot(job: PracticeJob | EvalJob | ArmsJob, n: int) -> Forecast:
    """Play the first `n` questions that are left, keep them, and return what is left then.

    The run that goes on uses them. For a practice run they are groups of its next step, and of
    several evaluations each plays so many.
    """
    store = job.session.store
    mark = store.read(spending.newest_ids)
    if isinstance(job, PracticeJob):
        names = [job.spec.name]
        await practice_run.pilot_practice(job, n)
    elif isinstance(job, ArmsJob):
        job = await with_direct(job)
        names = [evaluation.spec.name for evaluation in job.evaluations.values()]
        await evaluation_run.pilot_evals(list(job.evaluations.values()), n)
    else:
        names = [job.spec.name]
        await evaluation_run.pilot_evals([job], n)
    did = store.read(spending.work_since, names, mark)
    begun = replace(job.session, restart_step=None, again=False)  # go on with the pilot's branch
    return replace(forecast_of(_within(job, begun)), pilot=n, piloted=did)


def forecast_of(job: PracticeJob | EvalJob | ArmsJob | EffectJob) -> Forecast:
    """Return what is left of a job; see `forecast`, `forecast_arms` and `forecast_effect`."""
    match job:
        case ArmsJob():
            return forecast_arms(job)
        case EffectJob():
            return forecast_effect(job)
        case _:
            return forecast(job)


def _within(
    job: PracticeJob | EvalJob | ArmsJob, session: Session
) -> PracticeJob | EvalJob | ArmsJob:
    """Return the job as one of another session."""
    return job.within(session) if isinstance(job, ArmsJob) else replace(job, session=session)
