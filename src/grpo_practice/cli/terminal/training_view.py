"""The steps and checkpoints of a training run as a person reads them."""

from typing import TYPE_CHECKING

from grpo_practice.cli.terminal.formatting import duration, file_size, reward, say, tokens
from grpo_practice.cli.terminal.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_practice.reports.learning_findings import StepRow
    from grpo_practice.reports.training import TrainedParts, UpdateRow


def show_trained(steps: "Sequence[StepRow]", trained: "TrainedParts") -> None:
    """Print a row for each closed step, the selection scores, and the checkpoints."""
    from grpo_practice.reports.training import selection_text

    by_step = trained.by_step
    closed = [row for row in steps if row.closed and row.plan.step in by_step]
    columns = ["reward", "taught", "uniform", "loss", "KL", "entropy", "gradient", "clipped"]
    columns += ["rate", "tokens", "time"]
    table(
        ["step", *columns],
        [_step(row, by_step[row.plan.step]) for row in closed],
        right=columns,
        least=["rate", "clipped", "gradient", "tokens", "uniform", "entropy", "KL", "time"],
    )
    if trained.selection:
        say(f"selection: {selection_text(trained.selection)}")
    table(
        ["checkpoint", "size", "sha256", "folder"],
        [
            (str(row.step), file_size(row.bytes), row.sha256.hex()[:8], row.path)
            for row in trained.checkpoints
        ],
        right=["size"],
        least=["sha256", "size"],
    )


def _step(row: "StepRow", update: "UpdateRow") -> "Sequence[str]":
    stats = row.stats or {}
    return (
        str(row.plan.step),
        reward(stats.get("mean_reward")),
        str(stats.get("informative", "-")),
        f"{update.uniform_share:.0%}",
        f"{update.loss:.3g}",
        "-" if update.kl is None else f"{update.kl:.2g}",
        "-" if update.entropy is None else f"{update.entropy:.2f}",
        f"{update.grad_norm:.2g}",
        "-" if update.clipped is None else f"{update.clipped:.1%}",
        f"{update.learning_rate:.1e}",
        tokens(update.tokens),
        duration(stats.get("seconds", update.seconds)),
    )
