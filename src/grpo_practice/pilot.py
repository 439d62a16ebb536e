"""A pilot: a little of a run is played and kept, and the rest of it forecast."""

from dataclasses import replace

from grpo_practice.app import evaluation_run, practice_run
from grpo_practice.app.evaluation_run import EvalJob
from grpo_practice.app.practice_run import PracticeJob
from grpo_practice.forecast.estimate import Forecast
from grpo_practice.forecast.remaining_calls import forecast
from grpo_practice.store.queries import spending


async def run_pilot(job: PracticeJob | EvalJob, n: int) -> Forecast:
    """Play the first `n` questions that are left, keep them, and return what is left then.

    The run that goes on uses them. For a practice run they are groups of its next step.
    """
    store = job.session.store
    mark = store.read(spending.newest_ids)
    if isinstance(job, PracticeJob):
        name = practice_run.spec_of(job).name
        await practice_run.pilot_practice(job, n)
    else:
        name = evaluation_run.spec_of(job).name
        await evaluation_run.pilot_eval(job, n)
    did = store.read(spending.work_since, name, mark)
    begun = replace(job.session, restart_step=None, again=False)  # go on with the pilot's branch
    return replace(forecast(replace(job, session=begun)), pilot=n, piloted=did)
