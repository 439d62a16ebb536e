"""Optuna study that suggests the settings of each trial and prunes unpromising trials."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from grpo_practice.core.errors import ChangedKey, ConfigError, FingerprintError
from grpo_practice.train.space import Choice, Space

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
                f"the search {name} began with other settings: its trials cannot be compared",
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
        self.study.tell(proposal.trial, None if state is not states.COMPLETE else score, state)

    def values_of(self, trial: Any) -> dict[str, Any]:
        """Return the settings of a finished trial."""
        params = trial.params
        return {
            key: part.values[params[key]] if isinstance(part, Choice) else params[key]
            for key, part in self.space.items()
            if key in params
        }
