"""How a rollout is played: a question and a system prompt become an answer."""

from dataclasses import dataclass
from typing import Protocol

from grpo_practice.calls import Scope
from grpo_practice.llm.ledgered import AgentChat
from grpo_practice.types import Trajectory


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """What a rollout is played with."""

    chat: AgentChat
    """The agent's model."""
    scope: Scope
    """Where its calls are addressed."""
    limit_s: float
    """The most seconds of its own model and tool calls."""


class Agent(Protocol):
    """Plays one rollout.

    Raises:
        EndpointRefusedError: No request would be answered; the run stops. Whatever else goes
            wrong is part of what it returns.
    """

    async def __call__(self, question: str, system: str, context: RolloutContext) -> Trajectory:
        """Answer the question."""
        ...
