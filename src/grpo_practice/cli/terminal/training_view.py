"""A training run as a person reads it, and what one would need."""

from shlex import quote
from typing import TYPE_CHECKING

from grpo_practice.cli.options import on_database
from grpo_practice.cli.terminal.formatting import say, say_next
from grpo_practice.cli.terminal.tables import facts

if TYPE_CHECKING:
    from grpo_practice.reports.trained_export import TrainedExport
    from grpo_practice.reports.training import TrainingForecast, TrainReport


def show_training(report: "TrainReport") -> None:
    """Print steps, rewards, the last checkpoint, and the next command."""
    _show(report)
    say_next(f"grpo-practice runs show {quote(report.run)}")


def show_training_forecast(needed: "TrainingForecast") -> None:
    """Print what a step took, and what the run would."""
    _show(needed)


def show_trained_export(exported: "TrainedExport") -> None:
    """Print what was written, how it is served, and the next commands."""
    _show(exported)
    if exported.library:
        library = f"--library {quote(exported.library)}"
        say(f"with what was practised on top: {on_database(exported.next_command)} {library}")
    say_next(exported.next_command)


def _show(report: "TrainReport | TrainingForecast | TrainedExport") -> None:
    (title,), *rows = report.summary()
    say(title, style="bold")
    facts([(row[0], row[1]) for row in rows])
