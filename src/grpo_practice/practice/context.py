"""The objects that a practice run works with."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.core.events import Emit
from grpo_practice.core.types import Library, PlannedStep
from grpo_practice.practice.answer_guard import LazyGuard
from grpo_practice.practice.teacher import Teacher
from grpo_practice.rollout.attempts import SystemCheck
from grpo_practice.rollout.failure_limit import Drain
from grpo_practice.rollout.play import Player
from grpo_practice.store import Store
from grpo_practice.store.records import Branch

AfterStep = Callable[[PlannedStep, Library], Awaitable[None]]
"""Evaluates the library that a closed step has produced, if an evaluation is due."""


@dataclass(frozen=True, slots=True)
class Practice:
    """A run, its models, and the settings for playing its steps."""

    branch: Branch
    store: Store
    emit: Emit
    player: Player
    later: Player
    """Player for early groups; its requests have a lower priority than all others."""
    teacher: Teacher
    settings: PracticeSettings
    drain: Drain
    after_step: AfterStep
    """Callback awaited for every closed step, including steps that an earlier invocation closed."""
    page_tools: Collection[str]
    """Names of the agent's tools that return web pages."""
    check: SystemCheck | None = None
    """Check that the agent sends its system prompt; None if the agent is allowed to omit it."""
    guard: LazyGuard | None = None
    """Check that no experience reveals an answer; None if `answer_guard` is off."""
    recorded: Library | None = None
    """Empty library, if the attempts were recorded before the run; None plays attempts."""
    pilot: int | None = None
    """Number of groups of the next step that a pilot plays, without closing the step; None plays
    all steps.
    """

    def early(self, groups: int) -> int:
        """Return how many of a step's groups are played with the library of the previous step."""
        if self.recorded is not None:
            return 0
        # 0.29 * 100 is 28.999…: without the small addition, a group would be lost.
        return int(self.settings.overlap * groups + 1e-9)
