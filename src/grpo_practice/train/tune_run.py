"""`train tune --trials`: training runs with settings proposed by Optuna."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from grpo_practice.config.identity import train_identity_of
from grpo_practice.core.errors import (
    ChangedKey,
    ConfigError,
    FingerprintError,
    PrunedError,
    RunFailedError,
)
from grpo_practice.reports.training import scored_steps
from grpo_practice.run.session import Session
from grpo_practice.store import Store
from grpo_practice.store.queries import runs
from grpo_practice.store.run_names import trial_name
from grpo_practice.train.requests import TuneRequest
from grpo_practice.train.run import run_train
from grpo_practice.train.space import Choice, Space
from grpo_practice.train.tune_report import Trial, TuneReport
from grpo_practice.train.tuning import TuneJob, check_same_search, prepare_search, tested

BOUND = "settings"
"""Study attribute that stores all settings on which its scores depend."""
STARTUP = 4
"""Number of initial trials that are never pruned, because a median of fewer is unreliable."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A trial to start or to resume."""

    number: int
    values: Mapping[str, Any]
    """Key of `train:` → value."""
    trial: Any
    """Optuna's object for this trial."""


@dataclass(frozen=True, slots=True)
class Study:
    """A search, stored in a file so that repeating the command resumes it."""

    study: Any
    space: Space
    seed: int

    @classmethod
    def open(
        cls, file: Path, name: str, space: Space, seed: int, settings: Mapping[str, Any]
    ) -> "Study":
        """Open the study with this name, or create it.

        Args:
            file: Journal of the study.
            name: Name of the experiment.
            space: Search space.
            seed: Seed of the search.
            settings: All other settings on which scores depend, as JSON values.

        Raises:
            ConfigError: Optuna is not installed.
            FingerprintError: The file belongs to a search with other settings.
        """
        try:
            import optuna
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend
        except ImportError as e:
            raise ConfigError(
                "a search needs Optuna, which is not installed",
                hint="pip install 'grpo-practice[tune]'",
            ) from e
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        file.parent.mkdir(parents=True, exist_ok=True)
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(file))),
            study_name=name,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP),
            load_if_exists=True,
        )
        # Compare in the form that the study returns: JSON turns tuples into lists.
        now = json.loads(json.dumps({**settings, "train.tune.seed": seed}))
        now |= {f"train.tune.space.{key}": repr(part) for key, part in space.items()}
        was = study.user_attrs.get(BOUND, now)
        changes = [
            ChangedKey(key, was.get(key), now.get(key))
            for key in sorted(was.keys() | now.keys())
            if was.get(key) != now.get(key)
        ]
        if changes:
            raise FingerprintError(
                f"the search {name} began with other settings, so its trials cannot be compared",
                changes,
                hint="undo the change, or give the search another exp_id",
            )
        study.set_user_attr(BOUND, now)
        return cls(study, space, seed)

    @property
    def trials(self) -> list[Any]:
        """Trials so far, in order."""
        return list(self.study.trials)

    def next(self) -> Suggestion:
        """Return the trial that the previous command left unfinished, or else a new one."""
        import optuna

        left = [t for t in self.study.trials if t.state is optuna.trial.TrialState.RUNNING]
        number = left[0].number if left else len(self.study.trials)
        # Seed a new sampler per trial, so that a resumed search makes the same suggestions as an
        # uninterrupted one.
        seed = int.from_bytes(sha256(f"{self.seed}|{number}".encode()).digest()[:4], "big")
        self.study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = optuna.trial.Trial(self.study, left[0]._trial_id) if left else self.study.ask()
        return Suggestion(
            number, {key: part.suggest(trial, key) for key, part in self.space.items()}, trial
        )

    def report(self, proposal: Suggestion, step: int, score: float) -> bool:
        """Record the score of a trial's weights after a step; return whether to prune the trial."""
        # A resumed trial reports the same step again, which Optuna would warn about.
        if step not in self.study.trials[proposal.number].intermediate_values:
            proposal.trial.report(score, step)
        return bool(proposal.trial.should_prune())

    def finish(self, proposal: Suggestion, score: float | None, *, pruned: bool) -> None:
        """Record the end of a trial; a trial without a score has failed."""
        import optuna

        states = optuna.trial.TrialState
        state = states.PRUNED if pruned else states.COMPLETE if score is not None else states.FAIL
        # A failed trial has no value, and a pruned one keeps the scores that it reported.
        self.study.tell(proposal.trial, None if state is not states.COMPLETE else score, state)

    def values_of(self, trial: Any) -> dict[str, Any]:
        """Return the settings of a finished trial."""
        params = trial.params
        return {
            key: part.values[params[key]] if isinstance(part, Choice) else params[key]
            for key, part in self.space.items()
            if key in params
        }


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
    # Beside the database, so that both are copied or deleted together.
    file = database.with_name(f"{database.name}{STUDIES}") / f"{job.exp_id}.journal"
    study = Study.open(file, job.exp_id, job.space, job.settings.tune.seed, _bound(job))
    while sum(t.state.is_finished() for t in study.trials) < job.count:
        await _run_trial(job, study, study.next())
    trials = [_trial(store, job.exp_id, study, trial) for trial in study.trials]
    return await tested(job, trials, lambda best: job.trial(best.number, best.values))


def _bound(job: TuneJob) -> dict[str, Any]:
    """Return the settings that all trials share and on which their scores depend."""
    settings = job.settings
    own = {f"train.{key}" for key in job.space}
    bound = {k: v for k, v in train_identity_of(job.loaded.config).items() if k not in own}
    length = {"train.steps": settings.steps, "train.epochs": settings.epochs}
    return {**bound, **length, "train.eval_every": settings.eval_every}


async def _run_trial(job: TuneJob, study: Study, proposal: Suggestion) -> None:
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
