"""Time and memory that a training run needs, measured on one step that is played and discarded."""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpo_practice.core.errors import ConfigError
from grpo_practice.reports.training import TrainingForecast
from grpo_practice.store import steps
from grpo_practice.store.queries import runs
from grpo_practice.train.checks import checkpoint_bytes, steps_planned, trained_parameters
from grpo_practice.train.job import TrainJob, plan_of
from grpo_practice.train.recipe import settings_of
from grpo_practice.train.trainer import memory_used, train
from grpo_practice.train.work import Answer


async def forecast_of(job: TrainJob) -> TrainingForecast:
    """Return the remaining steps, and the time and memory that one step takes on this machine.

    Raises:
        ConfigError: The command was started in several processes.
    """
    if job.ranks.count > 1:
        raise ConfigError(
            "--dry-run cannot measure several processes", hint="start it without torchrun"
        )
    settings, store = settings_of(job.config), job.session.store
    planned = steps_planned(job.config, job.sample_ids)
    branch = store.read(runs.newest_branch, job.name)
    closed = sum(row.closed for row in store.read(steps.on_line, branch)) if branch else 0
    measured = _Measured(settings.group_size)
    job.session.notice("two steps are being measured, which takes minutes on a slow machine")
    with tempfile.TemporaryDirectory(prefix="grpo-practice-") as folder:
        # Play two steps and measure the second, because the first one includes warm-up.
        plan = plan_of(job, planned[:2], Path(folder))
        # Neither save nor evaluate, because a step's time does not include them.
        plan = replace(plan, save_every=None, selection=None)
        await asyncio.to_thread(train, plan, job.ranks, measured)
    trained = trained_parameters(job.model, settings)
    device, memory = memory_used()
    return TrainingForecast(
        run=job.name,
        model=settings.model,
        steps=len(planned),
        steps_left=max(len(planned) - closed, 0),
        rollouts=settings.prompts_per_step * settings.group_size,
        trained=trained,
        checkpoint_bytes=checkpoint_bytes(trained),
        step_s=measured.ended - measured.begun,
        tokens_in=sum(answer.tokens_in for answer in measured.answers),
        tokens_out=sum(answer.tokens_out for answer in measured.answers),
        memory_bytes=memory,
        device=device,
        judged=job.verify.is_judge,
    )


@dataclass(slots=True)
class _Measured:
    """Measurements of the last step; rewards are made up, so that no judge is called."""

    group_size: int
    begun: float = 0.0
    ended: float = 0.0
    answers: list[Answer] = field(default_factory=list)

    def began(self, step: int) -> None:
        self.begun = time.monotonic()
        self.answers.clear()

    def score(self, step: int, answers: Sequence[Answer]) -> list[float | None]:
        self.answers += answers
        # Alternate the rewards, because groups with equal rewards may be skipped and cost less.
        return [float(answer.attempt % 2) for answer in answers]

    def updated(self, step: int, inner: int, logs: Mapping[str, float]) -> None:
        self.ended = time.monotonic()

    def saved(self, step: int, folder: Path) -> None:
        pass

    def evaluated(self, step: int, answers: Sequence[Answer]) -> None:
        pass

    def stopping(self) -> bool:
        return False
