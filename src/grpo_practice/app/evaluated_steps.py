"""The steps of a practice run after which libraries are evaluated."""

from collections.abc import Sequence

from grpo_practice.app.evaluation_run import EvalJob, wanted_rollouts
from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.store.records import StepRow


def due(settings: PracticeSettings, rows: Sequence[StepRow]) -> set[int]:
    """Return the steps after which libraries are evaluated, if they are."""
    if settings.eval_strategy == "epoch":
        # The dict keeps the last step of each epoch.
        return set({row.plan.epoch: row.plan.step for row in rows}.values())
    steps = {row.plan.step for row in rows}
    return {step for step in steps if (step + 1) % settings.eval_steps == 0}


def chosen_among(settings: PracticeSettings, rows: Sequence[StepRow]) -> set[int]:
    """Return the steps whose libraries `--step best` is chosen among: those due, and the last."""
    return due(settings, rows) | {max((row.plan.step for row in rows), default=0)}


def evaluation_rollouts(
    settings: PracticeSettings,
    rows: Sequence[StepRow],
    tests: EvalJob | None,
    selects: EvalJob | None,
    first: bool,
) -> int:
    """Return the rollouts of all evaluations on the way, each as often as it is begun.

    Args:
        settings: The practice run's.
        rows: Its steps.
        tests: Evaluation after steps, if any.
        selects: Evaluation that the best library is chosen by, if any.
        first: Whether the agent without a library is evaluated before all steps.
    """
    total = 0
    if tests is not None:
        total += (len(due(settings, rows)) + first) * wanted_rollouts(tests)
    if selects is not None:  # the start library is a candidate, too
        total += (1 + len(chosen_among(settings, rows))) * wanted_rollouts(selects)
    return total
