"""Tools of an agent: functions with a schema, each result stored before the model reads it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from grpo_practice.calls import Scope
from grpo_practice.errors import AgentError

Schema = Mapping[str, Any]


class ToolError(AgentError):
    """A tool could not do what it was asked; the message is what the model reads."""


@dataclass(frozen=True, slots=True)
class Output:
    """Answer of a tool."""

    text: str
    cost_micro: int | None = 0
    """Cost in micro-dollars; None is unknown."""
    waited_s: float = 0.0
    """Seconds that it waited for an endpoint: they are no time of the rollout's."""


Run = Callable[[Mapping[str, Any], Scope], Awaitable[Output]]
"""Does it: from arguments that may be anything, at a rollout's scope of stage `tool`.

Raises:
    ToolError: It cannot; the model reads why. Any other error is told to the model, too.
    EndpointRefusedError: The service behind it serves nobody any more; the run stops.
"""
ToolSession = Callable[[], AbstractAsyncContextManager[Callable[[str, Mapping[str, Any]], Any]]]
"""Opens a state of its own for one rollout: what it gives is awaited with name and arguments."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One function a model can call."""

    name: str
    description: str
    parameters: Schema
    run: Run
    version: str = "1"
    """Changes when the same arguments may be answered otherwise; part of a call's identity."""
    runs_in: str = "grpo-practice"
    """Backend that answered, for the record: `monty 1.4.0`, `google.serper.dev`."""
    slots: asyncio.Semaphore | None = None
    """Slots; a running call holds one, and waiting for it is no time of the rollout's."""
    session: ToolSession | None = None
    """Session where answers depend on earlier calls; replaces `run`, equal for tools that share it.

    A rollout that is resumed makes its stored calls again, in order, and checks that the results
    agree.
    """
    unlike: str = "its answers depend on more than the calls of a rollout"
    """Reason, and the way out, where they do not agree."""

    @property
    def schema(self) -> dict[str, Any]:
        """Entry of `tools` in a chat completion."""
        about = {"name": self.name, "description": self.description}
        return {"type": "function", "function": about | {"parameters": dict(self.parameters)}}
