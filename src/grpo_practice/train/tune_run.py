"""`train tune --trials`: training runs with settings proposed by Optuna."""

from dataclasses import replace
from functools import partial
from typing import Any

from grpo_practice.config.identity import train_identity_of
from grpo_practice.core.errors import PrunedError, RunFailedError
from grpo_practice.run.session import Session
from grpo_practice.store import Store
from grpo_practice.store.queries import runs
from grpo_practice.store.run_names import trial_name
from grpo_practice.train.evaluation import scored_steps
from grpo_practice.train.requests import TuneRequest
from grpo_practice.train.run import run_train
from grpo_practice.train.tune import Study, Suggestion
from grpo_practice.train.tune_report import Trial, TuneReport
from grpo_practice.train.tuning import TuneJob, best_of, check_same_search, prepare_search, tested

STUDIES = ".tune"
"""Suffix of the folder next to a database that holds studies."""
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
"""States of a trial: Optuna's name → the name in reports."""


def prepare_trials(session: Session, request: TuneRequest) -> TuneJob:
    """Return a search by trials; nothing is trained yet.

    Raises:
        ConfigError: As for `tuning.prepare_search`.
    """
    job = prepare_search(session, request, request.trials)
    check_same_search(job)
    return job


async def run_trials(job: TuneJob) -> TuneReport:
    """Play trials until the requested number is reached, then test the best trial once.

    Raises:
        StoppedError: A signal stopped the current trial after a step.
    """
    store = job.session.store
    database = store.path.resolve()
    file = database.with_name(f"{database.name}{STUDIES}") / f"{job.exp_id}.journal"
    study = Study.open(file, job.exp_id, job.space, job.settings.tune.seed, _bound(job))
    while sum(t.state.is_finished() for t in study.trials) < job.count:
        await _play(job, study, study.next())
    trials = [_trial(store, job.exp_id, study, trial) for trial in study.trials]
    selection = job.loaded.config.practice.select_dataset or ""
    report, best = TuneReport(job.exp_id, trials, None, selection), best_of(trials)
    return await tested(job, report, best, job.trial(best.number, best.values)) if best else report


def _bound(job: TuneJob) -> dict[str, Any]:
    """Return the settings that all trials share and on which their scores depend."""
    settings = job.settings
    own = {f"train.{key}" for key in job.space}
    bound = {k: v for k, v in train_identity_of(job.loaded.config).items() if k not in own}
    length = {"train.steps": settings.steps, "train.epochs": settings.epochs}
    return {**bound, **length, "train.eval_every": settings.eval_every}


async def _play(job: TuneJob, study: Study, proposal: Suggestion) -> None:
    """Train or resume a trial until it is complete or pruned."""
    trained = job.trial(proposal.number, proposal.values)
    pruned, score = False, None
    try:
        report = await run_train(replace(trained, on_score=partial(study.report, proposal)))
        score = report.selection[max(report.selection)] if report.selection else None
    except PrunedError as e:
        pruned = True
        job.session.notice(str(e))
    except RunFailedError as e:  # failing settings are a result, too
        job.session.notice(f"trial {proposal.number} has failed: {e}")
    study.finish(proposal, score, pruned=pruned)


def _trial(store: Store, exp_id: str, study: Study, trial: Any) -> Trial:
    name = trial_name(exp_id, trial.number)
    run = store.read(runs.find, name)
    found = scored_steps(store, name)
    return Trial(
        number=trial.number,
        run=name,
        state=STATES.get(trial.state.name, "running"),
        values=study.values_of(trial),
        score=found[max(found)] if found else None,
        steps=run.steps_closed if run else 0,
    )
