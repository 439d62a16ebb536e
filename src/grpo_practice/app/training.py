"""The part of `Workspace` that trains weights."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_practice.app.run_calls import RunCalls

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from grpo_practice.app.options import TrainOptions
    from grpo_practice.app.request import ConfigInput
    from grpo_practice.reports.comparison import ComparisonReport
    from grpo_practice.reports.trained_export import TrainedExport
    from grpo_practice.reports.training import TrainingForecast, TrainReport
    from grpo_practice.reports.tuning import TuneReport


class Training(RunCalls):
    """Methods of `Workspace` for training runs."""

    def train(
        self, config: "ConfigInput | None" = None, **options: "Unpack[TrainOptions]"
    ) -> "TrainReport | None":
        """Train weights by GRPO; a run goes on at its last checkpoint.

        Started by `torchrun`, all processes call it; only the first one gets a report.

        Args:
            config: File, name in ./configs, mapping or typed config with `train:`; None goes on
                with the latest training run, else takes the practice.yaml of the current folder.
            options: See `TrainOptions`.

        Raises:
            GrpoPracticeError: The run could not be completed; its last checkpoint is whole.
        """
        from grpo_practice.app.options import train_job
        from grpo_practice.app.train_run import help_if_not_first, run_train

        if help_if_not_first():
            return None
        with self._job(train_job, config, options) as job:
            return self._wait(job.session, run_train(job))

    def tune(
        self,
        config: "ConfigInput | None" = None,
        *,
        trials: int | None = None,
        population: int | None = None,
        **options: "Unpack[TrainOptions]",
    ) -> "TuneReport":
        """Train under several settings, choose on the selection questions, and test the best once.

        The same call goes on where one stopped; with more `trials` it adds those that are missing.

        Args:
            config: As for `train`; its `train.tune.space` says what a trial may take.
            trials: Trials in all, each trained by itself.
            population: Members that are trained in turns, of which bad ones take over the weights
                of good ones; in place of trials.
            options: See `TrainOptions`.

        Raises:
            GrpoPracticeError: The search could not be completed; as `train`.
        """
        from grpo_practice.app.options import check_least, tune_job
        from grpo_practice.app.population_run import prepare_population, run_population
        from grpo_practice.app.tune_run import prepare_trials, run_trials
        from grpo_practice.errors import ConfigError

        check_least("trials", trials, 1)
        check_least("population", population, 2)
        match trials, population:
            case int(), None:
                make, run = partial(prepare_trials, trials=trials), run_trials
            case None, int():
                make, run = partial(prepare_population, members=population), run_population
            case _:
                raise ConfigError(
                    "a search is by trials or by a population", hint="trials=8, or population=4"
                )
        with self._job(partial(tune_job, make), config, options) as job:
            return self._wait(job.session, run(job))

    def export_trained(
        self,
        run: str,
        step: str | int = "last",
        *,
        output: str | Path | None = None,
        whole: bool = False,
        force: bool = False,
    ) -> "TrainedExport":
        """Write the weights of a training run, and the file of the agent that has them.

        Args:
            run: Training run.
            step: `last`, `best` (on the selection questions) or the number of a saved step.
            output: Folder to write; None: `EXP-trained` in the current one.
            whole: Whether to write the whole model, in place of the adapter.
            force: Whether to replace a folder that an earlier export has written.

        Raises:
            ConfigError: There are no such weights, or the folder cannot be written.
        """
        from grpo_practice.app.trained_export import export_trained

        with self._store() as store:
            exp = run.partition("/")[0]
            target = Path(f"{exp}-trained" if output is None else output)
            return export_trained(store, run, str(step), target, whole=whole, force=force)

    def compare_arms(self, exp_id: str, arms: Sequence[str]) -> "ComparisonReport":
        """Compare what practice and training have done to an agent; nothing is played.

        Args:
            exp_id: Experiment.
            arms: Two or more of `base`, `practised`, `trained` and `trained+practised`, which
                `evaluate_arms` has played.

        Raises:
            ConfigError: One was not played, or not asked like the others.
        """
        from grpo_practice.app.trained_arms import compare_stored

        with self._store() as store:
            return compare_stored(store, exp_id, arms)

    def is_training(self, run: str) -> bool:
        """Return whether it is a training run; False for one that is not there."""
        from grpo_practice.store.queries import runs

        with self._store() as store:
            found = store.read(runs.find, run)
            return found is not None and found.kind == "train"

    def forecast_training(
        self, config: "ConfigInput | None" = None, **options: "Unpack[TrainOptions]"
    ) -> "TrainingForecast":
        """Play and measure one step, keep nothing of it, and say what the run would need.

        Args:
            config: As for `train`.
            options: See `TrainOptions`.
        """
        from grpo_practice.app.options import train_job
        from grpo_practice.app.train_forecast import forecast_of

        with self._job(train_job, config, options, foresee=True) as job:
            return self._wait(job.session, forecast_of(job))
