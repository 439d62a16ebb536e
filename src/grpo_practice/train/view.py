"""Terminal output at the end of training, a search or an export of weights."""

from shlex import quote
from typing import TYPE_CHECKING

from grpo_practice.cli.options import on_database
from grpo_practice.cli.terminal.formatting import reward, say, say_next
from grpo_practice.cli.terminal.tables import facts, table

if TYPE_CHECKING:
    from grpo_practice.reports.training import TrainingForecast, TrainReport
    from grpo_practice.train.export_report import TrainedExport
    from grpo_practice.train.tune_report import TuneReport


def show_training(report: "TrainReport") -> None:
    """Print steps, rewards, the last checkpoint, and the next command."""
    _show(report)
    say_next(f"grpo-practice runs show {quote(report.run)}")


def show_training_forecast(needed: "TrainingForecast") -> None:
    """Print the measured cost of a step and the estimated cost of the run."""
    _show(needed)


def show_tuning(report: "TuneReport") -> None:
    """Print a row for each trial, then the best trial with its scores and their meaning."""
    from grpo_practice.train.tune_report import setting_text

    keys = list(dict.fromkeys(key for trial in report.trials for key in trial.values))
    population = any(trial.phases for trial in report.trials)
    own = ["member", "state", "weights of"] if population else ["trial", "state"]
    table(
        [*own, *keys, "steps", "selection"],
        [
            (
                str(trial.number),
                trial.state,
                *([trial.source or "own"] if population else []),
                *(setting_text(trial.values.get(key)) for key in keys),
                str(trial.steps),
                reward(trial.score),
            )
            for trial in report.trials
        ],
        right=["steps", "selection"],
    )
    _show(report)
    if report.best is not None:
        say(report.note)
        say_next(f"grpo-practice export-agent --run {quote(report.best.run)}")


def show_trained_export(exported: "TrainedExport") -> None:
    """Print the exported files, how to serve them, and the next commands."""
    _show(exported)
    if exported.library:
        library = f"--library {quote(exported.library)}"
        say(f"to add the library practised on top: {on_database(exported.next_command)} {library}")
    say_next(exported.next_command)


def _show(report: "TrainReport | TrainingForecast | TrainedExport | TuneReport") -> None:
    (title,), *rows = report.summary()
    say(title, style="bold")
    facts([(row[0], row[1]) for row in rows])
