"""`train tune`: trials of training under other settings, chosen on the selection questions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from grpo_practice import stats
from grpo_practice.app.arms import each_once
from grpo_practice.app.configs import train_config
from grpo_practice.app.request import RunRequest
from grpo_practice.app.session import Session, StepStop, open_run
from grpo_practice.app.train_evaluation import (
    WeightsEvaluation,
    score_weights,
    scored_steps,
    weights_evaluation,
)
from grpo_practice.app.train_job import TrainJob, planned, prepare_train, selecting
from grpo_practice.app.train_run import run_train
from grpo_practice.app.train_scoring import answers_to, scoring
from grpo_practice.app.trained_weights import TrainedWeights, trained_weights
from grpo_practice.config import Loaded
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.errors import ConfigError, PrunedError, RunFailedError
from grpo_practice.reports.tuning import Trial, TuneReport
from grpo_practice.store import Store, branches, steps
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.run_names import trial_name
from grpo_practice.train.gather import Ranks
from grpo_practice.train.recipe import settings_of
from grpo_practice.train.tune import Proposal, Space, Study, space_of

AT_THE_END = 1 << 30
"""Steps between evaluations that come to none but the last."""
STUDIES = ".tune"
"""Ending of the name of the folder beside a database that holds studies."""


@dataclass(frozen=True, slots=True)
class TuneJob:
    """A search with all that it names looked up and checked, ready to run."""

    session: Session
    request: RunRequest
    loaded: Loaded[PracticeConfig]
    trials: int
    space: Space

    @property
    def exp_id(self) -> str:
        """Experiment that the trials belong to."""
        return self.loaded.config.exp_id


def prepare_tune(session: Session, request: RunRequest, trials: int) -> TuneJob:
    """Return the job; nothing is trained yet.

    Raises:
        ConfigError: The configuration cannot be used, there are no questions to choose by, or a
            value of the space is one that no trial can have.
    """
    if Ranks.of_environment().count > 1:
        raise ConfigError(
            "a search trains one trial after the other, each on one process",
            hint="start it without torchrun",
        )
    loaded = train_config(session.store, request)
    config = loaded.config
    if config.practice.select_dataset is None:
        raise ConfigError(
            "practice.select_dataset is not set: there are no questions to choose a trial by",
            hint="--set practice.select_dataset=NAME, other questions than those evaluated on",
        )
    space = space_of(settings_of(config).tune.space)
    for key, part in space.items():
        for value in part.ends:
            train_config(session.store, _with(request, {key: value}))
    session = replace(session, emit=each_once(session.emit), step_stop=StepStop())
    return TuneJob(session, request, loaded, trials, space)


def _with(request: RunRequest, values: Mapping[str, Any]) -> RunRequest:
    """Return the request of a trial; values win over whatever was typed."""
    return replace(
        request, values={**request.values, **{f"train.{key}": v for key, v in values.items()}}
    )


async def run_tune(job: TuneJob) -> TuneReport:
    """Play trials until there are as many as asked for; test the best one, once.

    Raises:
        StoppedError: A signal ended the trial under way after a step.
    """
    store = job.session.store
    database = store.path.resolve()
    file = database.with_name(f"{database.name}{STUDIES}") / f"{job.exp_id}.journal"
    seed = settings_of(job.loaded.config).tune.seed
    study = Study.open(file, job.exp_id, job.space, seed)
    while sum(t.state.is_finished() for t in study.trials) < job.trials:
        await _play(job, study, study.next())
    return await _report(job, study)


async def _play(job: TuneJob, study: Study, proposal: Proposal) -> None:
    """Train a trial, or go on with it, until it is done or worth no more."""
    trained = prepare_train(
        job.session, _with(job.request, proposal.values), trial_name(job.exp_id, proposal.number)
    )
    every = settings_of(trained.config).eval_every or AT_THE_END
    trained = replace(
        selecting(trained, every),
        session=replace(trained.session, step_stop=job.session.step_stop),
        on_score=partial(study.report, proposal),
    )
    pruned, score = False, None
    try:
        report = await run_train(trained)
        score = report.selection[max(report.selection)] if report.selection else None
    except PrunedError as e:
        pruned = True
        job.session.notice(str(e))
    except RunFailedError as e:  # settings that cannot work are a result, too
        job.session.notice(f"trial {proposal.number} has failed: {e}")
    study.finish(proposal, score, pruned=pruned)


async def _report(job: TuneJob, study: Study) -> TuneReport:
    store, config = job.session.store, job.loaded.config
    trials = [_trial(store, job.exp_id, study, trial) for trial in study.trials]
    done = [t for t in trials if t.state == "complete" and t.score is not None]
    best = max(done, key=lambda t: (t.score or 0.0, -t.number)) if done else None
    report = TuneReport(job.exp_id, trials, best, config.practice.select_dataset or "")
    dataset = config.evaluation.data.dataset
    if best is None or dataset is None:
        return report
    name = await _tested(job, study, best, dataset)
    run = store.read(runs.get, name)
    branch = store.read(branches.load, run.head_branch or 0)
    found = stats.score(store.read(scores.questions, branch), config.evaluation.pass_k)
    return replace(report, tested=name, test=found)


def _trial(store: Store, exp_id: str, study: Study, trial: Any) -> Trial:
    name = trial_name(exp_id, trial.number)
    states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    run = store.read(runs.find, name)
    found = scored_steps(store, name)
    return Trial(
        number=trial.number,
        run=name,
        state=states.get(trial.state.name, "running"),
        values=study.values_of(trial),
        score=found[max(found)] if found else None,
        steps=run.steps_closed if run else 0,
    )


async def _tested(job: TuneJob, study: Study, best: Trial, dataset: str) -> str:
    """Evaluate the best trial's last weights on the test questions, unless that was done."""
    store = job.session.store
    values = study.values_of(study.trials[best.number])
    trained = prepare_train(job.session, _with(job.request, values), best.run)
    weights = trained_weights(store, best.run)
    evaluation = replace(
        weights_evaluation(trained.session, trained.loaded, trained.verify, dataset, best.run),
        chooses=False,
    )
    sha, step = weights.checkpoint.sha256, weights.checkpoint.step
    if not evaluation.is_done(sha, step):
        await _answer(trained, weights, evaluation)
    return evaluation.spec(sha, step).name


async def _answer(
    trained: TrainJob, weights: TrainedWeights, evaluation: WeightsEvaluation
) -> None:
    session = trained.session
    seed = settings_of(trained.config).seed
    answers = await answers_to(trained, evaluation, weights.checked(), seed)
    with open_run(session, trained.spec, partial(planned, trained)) as run:
        assert all(row.closed for row in session.store.read(steps.on_line, run.branch))
        async with scoring(trained, run) as player:
            await score_weights(
                evaluation,
                player,
                answers,
                sha=weights.checkpoint.sha256,
                step=weights.checkpoint.step,
            )
