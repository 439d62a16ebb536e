"""The parts that a practice run works with."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from grpo_practice.attempts import SystemCheck
from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.events import Emit
from grpo_practice.failure_limit import Land
from grpo_practice.practice.answer_guard import LazyGuard
from grpo_practice.practice.group_policy import GroupPolicy, group_policy
from grpo_practice.practice.teacher import Teacher
from grpo_practice.rollout import Player
from grpo_practice.store import Store
from grpo_practice.store.records import Branch
from grpo_practice.types import Library, PlannedStep

AfterStep = Callable[[PlannedStep, Library], Awaitable[None]]
"""Evaluates the library that a closed step has made, where that is due."""


@dataclass(frozen=True, slots=True)
class Practice:
    """A run, its models, and how its steps are played."""

    branch: Branch
    store: Store
    emit: Emit
    player: Player
    later: Player
    """Player of the early groups: its requests queue behind all others."""
    teacher: Teacher
    settings: PracticeSettings
    land: Land
    after_step: AfterStep
    """Awaited for every closed step, also for those an earlier invocation closed."""
    page_tools: Collection[str]
    """Names of the agent's tools whose results are web pages."""
    check: SystemCheck | None = None
    """Watch over the agent's requests; None if the agent may leave out its system prompt."""
    guard: LazyGuard | None = None
    """Check that no experience gives an answer away; None where `answer_guard` is off."""
    pilot: int | None = None
    """Number of groups of the next step to play, with no step closed; None plays all steps."""

    @property
    def policy(self) -> GroupPolicy:
        """The choice among the groups of a step."""
        return group_policy(self.settings)
