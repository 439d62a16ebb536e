"""Python functions in place of names in a configuration: an agent, a verify function.

They live in this process only. A run is bound to their source, so that a changed function is
another agent, or another judge, as a changed file is. Values that a function captures, and modules
it imports, are not looked at.
"""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from typing import Any

from grpo_practice.app.custom_agent import check_call
from grpo_practice.config.reading.compose import Override
from grpo_practice.errors import ConfigError
from grpo_practice.user_code import EvaluationSample, UserFunction, accepts, is_async
from grpo_practice.verify.resolve import ASYNC_TIMEOUT_S, VerifyFunction


@dataclass(frozen=True, slots=True)
class AgentFunction:
    """An agent as a Python function, called as one of `type: python` is."""

    name: str
    """Module and name: what stands as `agent.function` on record."""
    function: Callable[..., Any]
    sha: str
    """Hash of its source: the identity of the agent."""


@dataclass(frozen=True, slots=True)
class PythonObjects:
    """Functions that a request brings along; None where the configuration names one."""

    agent: AgentFunction | None
    verify: VerifyFunction | None

    @property
    def overrides(self) -> list[Override]:
        """Keys of the configuration that name these functions, for the record."""
        found = list[Override]()
        if self.agent is not None:
            found += [
                ("evaluation.agent.type", "python"),
                ("evaluation.agent.function", self.agent.name),
            ]
        if self.verify is not None:
            found.append(("evaluation.verify", self.verify.name))
        return found


def python_objects(agent: object, verify: object) -> PythonObjects:
    """Return those of the two that are functions, ready to be used.

    Raises:
        ConfigError: One has no source, or cannot be called as it would be.
    """
    return PythonObjects(
        agent_function(agent) if callable(agent) else None,
        verify_function(verify) if callable(verify) else None,
    )


def agent_function(function: Callable[..., Any]) -> AgentFunction:
    """Return the function as an agent.

    Raises:
        ConfigError: It has no source, or cannot be called as an agent is.
    """
    name = f"{function.__module__}:{_name(function, 'agent')}"
    source = _source(function, "agent")
    check_call(name, function)
    return AgentFunction(name, function, sha256(source.encode()).hexdigest())


def verify_function(function: Callable[..., Any]) -> VerifyFunction:
    """Return the function as one that scores answers.

    It runs in this process: an async one on the loop, with `llm` where it takes that; any other in
    a thread, which nothing can end.

    Raises:
        ConfigError: It has no source, or cannot be called with a sample.
    """
    func, source = _name(function, "verify"), _source(function, "verify")
    # The form of a function in a file, so that a config may name it and it may ask a judge. Not
    # the file itself: a notebook has another one in every session.
    name = f"{function.__module__}.py:{func}"
    takes_llm = accepts(function, {}, llm=True) is None
    if not takes_llm and (problem := accepts(function, {}, llm=False)):
        raise ConfigError(f"verify {name}: it cannot be called as {func}(sample): {problem}")

    async def scored(sample: EvaluationSample, *, llm: Any) -> Any:
        if is_async(function):
            return await (function(sample, llm=llm) if takes_llm else function(sample))
        return await asyncio.to_thread(function, sample)

    file = UserFunction(Path(inspect.getsourcefile(function) or "python"), func, source)
    return VerifyFunction(name, "custom", {}, ASYNC_TIMEOUT_S, file=file, on_loop=scored)


def _name(function: Callable[..., Any], what: str) -> str:
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise ConfigError(
            f"{what} {function!r} has no name that a run could be recorded with",
            hint="write it with `def`, and pass that function",
        )
    return str(name)


def _source(function: Callable[..., Any], what: str) -> str:
    try:
        return dedent(inspect.getsource(function))
    except (OSError, TypeError) as e:
        raise ConfigError(
            f"{what} {function!r} has no source to know it by: {e}",
            hint="define it in a file or a notebook cell, or name it in the config as"
            " file.py:function",
        ) from e
