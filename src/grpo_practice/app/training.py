"""The part of `Workspace` that trains weights."""

from typing import TYPE_CHECKING

from grpo_practice.app.run_calls import RunCalls

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from grpo_practice.app.options import TrainOptions
    from grpo_practice.app.request import ConfigInput
    from grpo_practice.reports.training import TrainingForecast, TrainReport


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

        with self._job(train_job, config, options, scratch=True) as job:
            return self._wait(job.session, forecast_of(job))
