"""A training run as a person reads it, and what one would need."""

from shlex import quote
from typing import TYPE_CHECKING

from grpo_practice.cli.terminal.formatting import say, say_next
from grpo_practice.cli.terminal.tables import facts

if TYPE_CHECKING:
    from grpo_practice.reports.training import TrainingForecast, TrainReport


def show_training(report: "TrainReport") -> None:
    """Print steps, rewards, the last checkpoint, and the next command."""
    _show(report)
    say_next(f"grpo-practice runs show {quote(report.run)}")


def show_training_forecast(needed: "TrainingForecast") -> None:
    """Print what a step took, and what the run would."""
    _show(needed)


def _show(report: "TrainReport | TrainingForecast") -> None:
    (title,), *rows = report.summary()
    say(title, style="bold")
    facts([(row[0], row[1]) for row in rows])
