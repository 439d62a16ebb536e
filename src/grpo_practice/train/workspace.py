"""Methods of `Workspace` that train weights."""

from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from grpo_practice.api.played_runs import takes
from grpo_practice.api.workspace import Workspace as Core
from grpo_practice.train.requests import TrainRequest, TuneRequest

if TYPE_CHECKING:
    from grpo_practice.reports.training import TrainedExport, TrainingForecast, TrainReport
    from grpo_practice.run.doctor.doctor import SliceCheck
    from grpo_practice.train.tune_report import TuneReport


class Training(Core):
    """GRPO training of weights: train, search for settings, forecast, export."""

    @takes(TrainRequest)
    def train(self, request: TrainRequest) -> "TrainReport | None":
        """Train weights with GRPO; an unfinished run continues from its last checkpoint.

        Under `torchrun`, every process makes this call, and only the first process gets a report.
        Without a config, the call resumes the latest training run; if there is no such run, it uses
        practice.yaml in the current folder.

        Raises:
            GrpoPracticeError: The run could not be completed; its last checkpoint is intact.
        """
        from grpo_practice.train.job import prepare_train
        from grpo_practice.train.run import help_if_not_first, run_train

        # Before the database is opened: only the first process may hold the run's lock.
        if help_if_not_first():
            return None
        return self._complete(request, prepare_train, run_train)

    @takes(TuneRequest)
    def tune(self, request: TuneRequest) -> "TuneReport":
        """Train with several settings, choose on the selection questions, and test the best once.

        The same call continues an unfinished search; with a higher `trials`, it adds trials up to
        that number.

        Raises:
            GrpoPracticeError: The search could not be completed; see `train`.
        """
        from grpo_practice.train.population import prepare_population, run_population
        from grpo_practice.train.tune_run import prepare_trials, run_trials

        if request.population is None:
            return self._complete(request, prepare_trials, run_trials)
        return self._complete(request, prepare_population, run_population)

    @takes(TrainRequest)
    def forecast_training(self, request: TrainRequest) -> "TrainingForecast":
        """Play and measure one step, discard it, and return what resources the run needs."""
        from grpo_practice.train.forecast import forecast_of
        from grpo_practice.train.job import prepare_train

        with self._job(request, prepare_train, foresee=True) as job:
            return self._wait(job.session, forecast_of(job))

    @override
    def export_trained(
        self,
        run: str,
        step: str | int = "last",
        *,
        output: str | Path | None = None,
        whole: bool = False,
        force: bool = False,
    ) -> "TrainedExport":
        """Write the weights of a training run, and an agent file that uses them.

        Args:
            run: Training run.
            step: `last`, `best` (on the selection questions) or the number of a saved step.
            output: Folder to write; None is `EXP-trained` in the current folder.
            whole: Whether to write the whole model instead of the adapter.
            force: Whether to replace a folder written by an earlier export.

        Raises:
            ConfigError: The weights do not exist, or the folder cannot be written.
        """
        from grpo_practice.train.export import export_trained

        with self._store() as store:
            exp = run.partition("/")[0]
            target = Path(f"{exp}-trained" if output is None else output)
            return export_trained(store, run, str(step), target, whole=whole, force=force)

    @override
    def _slice_checks(self) -> "list[SliceCheck]":
        from grpo_practice.train.checks import diagnose_training

        return [*super()._slice_checks(), diagnose_training]
