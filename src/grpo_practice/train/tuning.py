"""Parts of a search for training settings that trials and populations share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from grpo_practice.config import Loaded
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.config.schema.train import TrainSettings
from grpo_practice.core import stats
from grpo_practice.core.errors import ConfigError
from grpo_practice.run.arms import each_once
from grpo_practice.run.session import Session, StepStop, open_run
from grpo_practice.store import steps
from grpo_practice.store.identity import population_of
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.run_names import trial_name
from grpo_practice.train.checkpoints import TrainedWeights, trained_weights
from grpo_practice.train.evaluation import WeightsEvaluation, score_weights, weights_evaluation
from grpo_practice.train.gather import Ranks
from grpo_practice.train.job import TrainJob, planned, prepare_train, selecting, train_config
from grpo_practice.train.recipe import settings_of
from grpo_practice.train.requests import TuneRequest
from grpo_practice.train.scoring import answers_to, scoring
from grpo_practice.train.space import Space, space_of
from grpo_practice.train.tune_report import Trial, TuneReport

AT_THE_END = 1 << 30
"""Interval between evaluations so large that only the final evaluation takes place."""


@dataclass(frozen=True, slots=True)
class TuneJob:
    """A prepared search: everything that it names has been found and checked."""

    session: Session
    request: TuneRequest
    loaded: Loaded[PracticeConfig]
    space: Space
    count: int
    """Total number of trials, or of members of a population."""
    population: str | None = None
    """How members of a population are compared, in words; None for trials."""

    @property
    def exp_id(self) -> str:
        """Experiment that the trials belong to."""
        return self.loaded.config.exp_id

    @property
    def settings(self) -> TrainSettings:
        """Training settings before any trial changes them."""
        return settings_of(self.loaded.config)

    def trial(self, number: int, values: Mapping[str, Any]) -> TrainJob:
        """Return a trial's training run, which is evaluated on the selection questions."""
        request = with_values(self.request, values)
        trained = prepare_train(self.session, request, trial_name(self.exp_id, number))
        every = settings_of(trained.config).eval_every or AT_THE_END
        session = replace(trained.session, step_stop=self.session.step_stop)
        return replace(selecting(trained, every), session=session)


def with_values(request: TuneRequest, values: Mapping[str, Any]) -> TuneRequest:
    """Return the request of a trial; its values override everything the user typed."""
    own = {f"train.{key}": value for key, value in values.items()}
    return replace(request, overrides={**request.overrides, **own})


def prepare_search(session: Session, request: TuneRequest, count: int | None) -> TuneJob:
    """Return a search; nothing is trained yet.

    Raises:
        ConfigError: The configuration cannot be used, there are no selection questions, a value in
            the space is impossible, or the experiment was searched with another method.
    """
    if count is None or None not in (request.trials, request.population):
        raise ConfigError(
            "a search uses either trials or a population", hint="trials=8, or population=4"
        )
    # Under torchrun every process would run its own search.
    if Ranks.of_environment().count > 1:
        raise ConfigError(
            "a search trains one trial after another, each in one process",
            hint="start it without torchrun",
        )
    if request.restart_step is not None:
        raise ConfigError(
            "--restart-step cannot be used with a search, which resumes by itself",
            hint="leave it out, or give the search another exp_id",
        )
    loaded = train_config(session.store, request)
    config = loaded.config
    if config.practice.select_dataset is None:
        raise ConfigError(
            "practice.select_dataset is not set, so there are no questions to select a trial with",
            hint="--set practice.select_dataset=NAME, a dataset that is not used for evaluation",
        )
    space = space_of(settings_of(config).tune.space)
    for key, part in space.items():
        # Check the extreme values now, so that an invalid value does not fail a trial hours later.
        for value in part.ends:
            train_config(session.store, with_values(request, {key: value}))
    session = replace(session, emit=each_once(session.emit), step_stop=StepStop())
    return TuneJob(session, request, loaded, space, count)


def check_same_search(job: TuneJob) -> None:
    """Raise ConfigError if the experiment was searched with another method."""
    # Every search begins with trial 0, and all its trials record the same method.
    branch = job.session.store.read(runs.newest_branch, trial_name(job.exp_id, 0))
    if branch is None:
        return
    was = population_of(branch.identity)
    if was != job.population:
        raise ConfigError(
            f"{job.exp_id} was searched with {was or 'trials'},"
            f" not with {job.population or 'trials'}",
            hint="undo the change, or give the search another exp_id",
        )


async def tested(
    job: TuneJob, trials: Sequence[Trial], trained_of: Callable[[Trial], TrainJob]
) -> TuneReport:
    """Return the report of a search, with the best trial evaluated once on the test questions.

    The best trial has the highest score among the trials that completed training.
    """
    store, config = job.session.store, job.loaded.config
    done = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    best = max(done, key=lambda trial: (trial.score or 0.0, -trial.number), default=None)
    report = TuneReport(job.exp_id, trials, best, config.practice.select_dataset or "")
    dataset = config.evaluation.data.dataset
    if best is None or dataset is None:
        return report
    trained = trained_of(best)
    # Only the best trial sees the test questions, and only once, so the choice cannot fit them.
    weights = trained_weights(store, best.run)
    evaluation = replace(
        weights_evaluation(trained.session, trained.loaded, trained.verify, dataset, best.run),
        chooses=False,
    )
    sha, step = weights.checkpoint.sha256, weights.checkpoint.step
    if not evaluation.is_done(sha, step):
        await _test(trained, weights, evaluation)
    # Read the score from the store, because an earlier command may have measured it.
    name = evaluation.spec(sha, step).name
    branch = store.read(runs.newest_branch, name)
    assert branch is not None, "it was evaluated above, or by an earlier command"
    found = stats.score(store.read(scores.questions, branch), config.evaluation.pass_k)
    return replace(report, tested=name, test=found)


async def _test(trained: TrainJob, weights: TrainedWeights, evaluation: WeightsEvaluation) -> None:
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
