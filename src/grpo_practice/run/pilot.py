"""Pilots: play a small part of a run, keep its rollouts, and forecast the rest."""

from dataclasses import replace

from grpo_practice.run import evaluation_run, practice_run
from grpo_practice.run.arms import ArmsJob, with_direct
from grpo_practice.run.evaluation_run import EvalJob
from grpo_practice.run.forecast.arms import forecast_arms
from grpo_practice.run.forecast.estimate import Forecast
from grpo_practice.run.forecast.remaining_calls import forecast
from grpo_practice.run.practice_run import PracticeJob
from grpo_practice.run.session import Session
from grpo_practice.store.queries import spending


async def run_pilot(job: PracticeJob | EvalJob | ArmsJob, n: int) -> Forecast:
    """Play the first `n` remaining questions, keep them, and return the work that then remains.

    The full run reuses these rollouts. In a practice run, they are groups of its next step; in a
    job with several evaluations, each plays `n` questions.
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
    begun = replace(job.session, restart_step=None, again=False)  # resume the pilot's branch
    return replace(forecast_of(_within(job, begun)), pilot=n, piloted=did)


def forecast_of(job: PracticeJob | EvalJob | ArmsJob) -> Forecast:
    """Return the forecast of the rest of a job; see `forecast` and `forecast_arms`."""
    return forecast_arms(job) if isinstance(job, ArmsJob) else forecast(job)


def _within(
    job: PracticeJob | EvalJob | ArmsJob, session: Session
) -> PracticeJob | EvalJob | ArmsJob:
    """Return a copy of the job for another session."""
    return job.within(session) if isinstance(job, ArmsJob) else replace(job, session=session)
