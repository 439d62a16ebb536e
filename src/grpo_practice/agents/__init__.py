"""Agents: from a question and a system prompt to an answer."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from grpo_practice.calls import Scope
from grpo_practice.llm.ledgered import AgentChat
from grpo_practice.types import Trajectory


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """The model, address and time of a rollout."""

    chat: AgentChat
    """Agent's model."""
    scope: Scope
    """Address of its calls."""
    limit_s: float
    """Limit for the seconds of its own model and tool calls."""


class Agent(Protocol):
    """A way to play one rollout.

    Raises:
        EndpointRefusedError: No request would be answered; the run stops. Any other failure is
            part of what it returns.
    """

    async def __call__(self, question: str, system: str, context: RolloutContext) -> Trajectory:
        """Answer the question."""
        ...


def being_cancelled() -> bool:
    """Return True if this task is being cancelled; False if user code raised CancelledError."""
    task = asyncio.current_task()
    # It counts requests to cancel: an error that foreign code raised leaves it at 0.
    return task is None or task.cancelling() > 0
