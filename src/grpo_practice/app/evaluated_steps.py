"""The evaluations on the way of a practice run: after which steps, of which libraries."""

from collections.abc import Sequence
from dataclasses import replace

from grpo_practice.app.evaluation_run import FEWER, EvalJob, run_eval, wanted_rollouts
from grpo_practice.app.preflight import LOST
from grpo_practice.app.specs import with_library
from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.errors import FingerprintError
from grpo_practice.store.records import StepRow
from grpo_practice.store.run_names import eval_name, library_variant, select_variant
from grpo_practice.types import Library


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


async def evaluate_baseline(tests: EvalJob) -> None:
    """Evaluate the agent without a library, before any practice is paid for."""
    try:
        await run_eval(tests)
    except FingerprintError as e:
        # Begun by hand, with more rollouts or another agent: it stays as it is.
        tests.session.notice(f"the agent without experiences is not evaluated: {e}")


async def evaluate_library(job: EvalJob, library: Library, step: int | None) -> None:
    """Evaluate the library, in a run of its own, so that it is never paid twice."""
    spec = with_library(job.spec, library_run(job, library), library)
    job = replace(job, spec=replace(spec, parent_step=step))
    try:
        await run_eval(job)
    except FingerprintError as e:
        if {change.key for change in e.diff} & {FEWER, LOST}:
            raise
        # This run was restarted with a changed agent; what its evaluations were is kept, and
        # they are made anew.
        await run_eval(replace(job, session=replace(job.session, restart_step=0)))


def library_run(job: EvalJob, library: Library) -> str:
    """Return the run that evaluates a library on the way, given that of the agent without one."""
    exp_id, variant = job.config.exp_id, library_variant(library)
    if job.spec.purpose == "select":
        return eval_name(exp_id, variant, select_variant(job.config.data.dataset or ""))
    return eval_name(exp_id, variant)
