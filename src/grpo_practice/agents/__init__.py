"""How a rollout is played: a question and a system prompt become an answer."""

from typing import Protocol

from grpo_practice.calls import Chat
from grpo_practice.types import Played


class Agent(Protocol):
    """Plays one rollout.

    Raises:
        EndpointRefusedError: No request would be answered; the run stops. Whatever else goes
            wrong is part of what it returns.
    """

    async def __call__(self, question: str, system: str, chat: Chat, *, limit_s: float) -> Played:
        """Answer the question; `limit_s` bounds the seconds spent in its own model calls."""
        ...
