"""Evaluations during a practice run: the steps after which they run, and the libraries they use."""

from collections.abc import Sequence
from dataclasses import replace

from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.core.errors import FingerprintError
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import Library
from grpo_practice.run.evaluation_run import FEWER, EvalJob, run_eval
from grpo_practice.run.preflight import LOST
from grpo_practice.store.identity import LIBRARY_SHA
from grpo_practice.store.records import StepRow
from grpo_practice.store.run_labels import ArmName
from grpo_practice.store.run_names import eval_name, library_variant, select_variant


def due(settings: PracticeSettings, rows: Sequence[StepRow]) -> set[int]:
    """Return the steps after which libraries are evaluated if evaluation is enabled."""
    if settings.eval_strategy == "epoch":
        # The dict keeps the last step of each epoch.
        return set({row.plan.epoch: row.plan.step for row in rows}.values())
    # Steps are counted from 0, and `eval_steps` counts how many have been made.
    steps = {row.plan.step for row in rows}
    return {step for step in steps if (step + 1) % settings.eval_steps == 0}


def chosen_among(settings: PracticeSettings, rows: Sequence[StepRow]) -> set[int]:
    """Return the steps that `--step best` chooses from: the evaluated steps and the last step."""
    return due(settings, rows) | {max((row.plan.step for row in rows), default=0)}


async def evaluate_baseline(tests: EvalJob) -> None:
    """Evaluate the agent without a library, before paying for any practice."""
    try:
        await run_eval(replace(tests, spec=replace(tests.spec, arm=ArmName("none"))))
    except FingerprintError as e:
        # The user ran it with more rollouts or another agent; leave it as it is.
        tests.session.notice(f"the agent without experiences is not evaluated: {e}")


async def evaluate_library(job: EvalJob, library: Library, step: int | None) -> None:
    """Evaluate the library in a separate run, so that its evaluation is never paid for twice."""
    identity = {**job.spec.identity, LIBRARY_SHA: library_sha(library).hex()}
    name = library_run(job, library)
    arm = ArmName(f"L{library.id}" if library else "none")
    spec = replace(job.spec, name=name, library=library, identity=identity, parent_step=step)
    job = replace(job, spec=replace(spec, arm=arm))
    try:
        await run_eval(job)
    except FingerprintError as e:
        # A restart would hide that rollouts or samples are missing.
        if {change.key for change in e.diff} & {FEWER, LOST}:
            raise
        # The practice run was restarted with a changed agent. Its earlier evaluations stay on
        # their branches, and are repeated on a new branch.
        await run_eval(replace(job, session=replace(job.session, restart_step=0)))


def library_run(job: EvalJob, library: Library) -> str:
    """Return the name of the run that evaluates a library during practice."""
    exp_id, variant = job.config.exp_id, library_variant(library)
    if job.spec.purpose == "select":
        return eval_name(exp_id, variant, select_variant(job.config.data.dataset or ""))
    return eval_name(exp_id, variant)
