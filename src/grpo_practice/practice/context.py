"""What a practice run works with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from grpo_practice.events import Emit
from grpo_practice.failure_limit import Land
from grpo_practice.practice.answer_guard import AnswerGuard
from grpo_practice.practice.teacher import Teacher
from grpo_practice.rollout import Player
from grpo_practice.store import Store
from grpo_practice.store.records import Branch
from grpo_practice.types import Library, PlannedStep

AfterStep = Callable[[PlannedStep, Library], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Practice:
    """A run, its models, and how its steps are played."""

    branch: Branch
    store: Store
    emit: Emit
    player: Player
    later: Player
    """The same, for what may wait: its requests queue behind all others."""
    teacher: Teacher
    concurrency: int
    max_failed_share: float
    land: Land
    after_step: AfterStep
    """Awaited for every closed step, also for those an earlier invocation closed."""
    skip_uniform: bool = False
    """Leave out half of the questions whose last group, in an earlier epoch, did not differ."""
    overlap: float = 0.0
    """Share of a step's groups that may be played while the step before is being finished."""
    guard: AnswerGuard | None = None
    """Keeps experiences from giving answers away; None where that is not wanted."""
    pilot: int | None = None
    """Play only so many groups of the next step, and close nothing."""
