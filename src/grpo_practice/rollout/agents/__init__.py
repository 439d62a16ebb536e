"""Agents: turn a question and a system prompt into an answer."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from grpo_practice.core.calls import Scope
from grpo_practice.core.types import Trajectory
from grpo_practice.llm.ledgered import AgentChat


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """The model, address and time limit of a rollout."""

    chat: AgentChat
    """The agent's model."""
    scope: Scope
    """Address of the rollout's calls."""
    limit_s: float
    """Time limit in seconds for the rollout's own model and tool calls."""


class Agent(Protocol):
    """A way to play one rollout.

    Raises:
        EndpointRefusedError: The endpoint rejects all requests, so the run stops. Any other failure
            is recorded in the returned trajectory.
    """

    async def __call__(self, question: str, system: str, context: RolloutContext) -> Trajectory:
        """Answer the question."""
        ...


def being_cancelled() -> bool:
    """Return True if this task is being cancelled; False if user code raised CancelledError."""
    task = asyncio.current_task()
    # The count covers only calls of cancel(): an error raised by foreign code leaves it at 0.
    return task is None or task.cancelling() > 0
