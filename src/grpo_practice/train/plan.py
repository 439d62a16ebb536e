"""The plan that a training run sends to its processes, and the folder for its checkpoints."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_practice.core.types import PlannedStep
from grpo_practice.store import datasets
from grpo_practice.store.records import Branch
from grpo_practice.store.trained_steps import checkpoints_root
from grpo_practice.train.checks import lora_arguments, prompts_of
from grpo_practice.train.recipe import batch_shape, grpo_arguments, settings_of
from grpo_practice.train.resume import StartingPoint
from grpo_practice.train.rewards import skips_uniform
from grpo_practice.train.work import MAKING, TrainingPlan

if TYPE_CHECKING:
    from grpo_practice.train.job import TrainJob


def plan_of(
    job: "TrainJob",
    planned: Sequence[PlannedStep],
    folder: Path,
    start: StartingPoint | None = None,
) -> TrainingPlan:
    """Return the work of all ranks; checkpoints are saved below `folder`.

    The trainer skips the steps before the start. They are filled with empty questions, as many as a
    step has now, because earlier steps may have had more or fewer.
    """
    config, settings = job.config, settings_of(job.config)
    read = partial(job.session.store.read, datasets.samples_of)
    first = start.step if start else 0
    passed = [""] * first * settings.prompts_per_step
    left = [plan for plan in planned if plan.step >= first]
    questions = [*passed, *(sample.question for plan in left for sample in read(plan))]
    shape = batch_shape(settings, job.ranks.count)
    making = str(folder / MAKING)
    return TrainingPlan(
        arguments=grpo_arguments(config, shape, steps=len(planned), folder=making),
        lora=None if settings.lora is None else lora_arguments(settings.lora),
        model=job.model,
        prompts=prompts_of(config, questions),
        prompts_per_step=settings.prompts_per_step,
        save_every=settings.save_every,
        checkpoints=folder,
        resume=start.folder if start else None,
        seed=settings.seed,
        scale_rewards=settings.scale_rewards,
        skip_uniform=skips_uniform(settings),
        device=settings.device,
        selection=job.selects.selection(job.every) if job.selects else None,
    )


def checkpoints_folder(database: Path, branch: Branch) -> Path:
    """Return the folder of a branch's checkpoints, next to the database."""
    run = branch.run.replace("/", ".")
    return checkpoints_root(database) / run / f"b{branch.id}"
