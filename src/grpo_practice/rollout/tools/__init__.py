"""Tools of an agent: functions with a schema; each result is stored before the model reads it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.calls import Scope
from grpo_practice.core.errors import AgentError

Schema = Mapping[str, Any]


class ToolError(AgentError):
    """A tool could not do its job; the model reads the message."""


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a tool call."""

    text: str
    cost_micro: int | None = 0
    """Cost in micro-dollars; None if unknown."""
    waited_s: float = 0.0
    """Seconds spent waiting for an endpoint, which do not count against the rollout's time."""


Run = Callable[[Mapping[str, Any], Scope], Awaitable[Output]]
"""Runs the tool with arguments that are not validated yet, at a rollout's scope for stage `tool`.

Raises:
    ToolError: The tool failed; the model reads why. Any other error is treated in the same way.
    EndpointRefusedError: The service behind the tool refuses all requests; the run stops.
"""
ToolSession = Callable[[], AbstractAsyncContextManager[Callable[[str, Mapping[str, Any]], Any]]]
"""Opens a separate state for one rollout; yields a coroutine function that takes a tool's name and
arguments.
"""


@dataclass(frozen=True, slots=True)
class Tool:
    """One function that a model can call."""

    name: str
    description: str
    parameters: Schema
    run: Run
    version: str = "1"
    """Version that changes whenever the same arguments may give a different result; part of a
    call's identity.
    """
    runs_in: str = "grpo-practice"
    """Backend that ran the call, stored with the result: `monty 1.4.0`, `google.serper.dev`."""
    limit: asyncio.Semaphore | None = None
    """Limit on concurrent calls; waiting for it does not count against the rollout's time."""
    session: ToolSession | None = None
    """Session used instead of `run` if results depend on earlier calls; tools with a common state
    share one session.

    A resumed rollout repeats its stored calls in order and checks that the results are the same.
    """
    unlike: str = "its answers depend on more than the calls of a rollout"
    """Explanation and remedy shown if repeated calls give different results."""

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in the form of an entry in `tools` in a chat completion request."""
        about = {"name": self.name, "description": self.description}
        return {"type": "function", "function": about | {"parameters": dict(self.parameters)}}
