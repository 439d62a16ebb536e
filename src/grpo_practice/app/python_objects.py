"""Python functions in place of names in a configuration: an agent, a verify function.

They live in this process only. A run is bound to their source, so that a changed function is
another agent, or another judge, as a changed file is. Values that a function captures, and modules
it imports, are not looked at.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from grpo_practice.app.program_files import check_call
from grpo_practice.config.reading.compose import Override
from grpo_practice.errors import ConfigError
from grpo_practice.verify.resolve import VerifyFunction, resolve_callable


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
    def agent_name(self) -> str | None:
        """Name of the agent in names of runs."""
        return None if self.agent is None else _short(self.agent.name)

    @property
    def verify_name(self) -> str | None:
        """Name of the verify function in the configuration and in names of runs."""
        if self.verify is None:
            return None
        module, name = self.verify.name.rpartition(":")[0], _short(self.verify.name)
        # A config that names a file's function has a judge, as this one needs; others have none.
        return f"{module}.py:{name}" if self.verify.asks_judge else name

    @property
    def overrides(self) -> list[Override]:
        """Keys of the configuration that name these functions, for the record."""
        found = list[Override]()
        if self.agent is not None:
            found += [
                ("evaluation.agent.type", "python"),
                ("evaluation.agent.function", self.agent.name),
            ]
        if self.verify_name is not None:
            found.append(("evaluation.verify", self.verify_name))
        return found


def _short(name: str) -> str:
    """Return the last part of `module:outer.<locals>.name`, fit for a name of a run."""
    return re.sub(r"\W+", "_", name.rpartition(":")[2].rpartition(".")[2])


def python_objects(agent: object, verify: object) -> PythonObjects:
    """Return those of the two that are functions, ready to be used; see `agent_function`."""
    return PythonObjects(
        agent_function(agent) if callable(agent) else None,
        resolve_callable(verify, {}) if callable(verify) else None,
    )


def agent_function(function: Callable[..., Any]) -> AgentFunction:
    """Return the function as an agent.

    Raises:
        ConfigError: It has no source, or cannot be called as an agent is.
    """
    name = f"{function.__module__}:{getattr(function, '__qualname__', type(function).__name__)}"
    check_call(name, function)
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as e:
        raise ConfigError(
            f"agent {name}: its source, by which it is known again, cannot be had: {e}",
            hint="define it with `def` in a file or a notebook cell, or name it in the config:"
            " agent.function: file.py:function",
        ) from e
    return AgentFunction(name, function, sha256(source.encode()).hexdigest())
