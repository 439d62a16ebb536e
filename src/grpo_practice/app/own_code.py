"""Code of the user: agents and verify functions, in files or as Python functions."""

import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.canonical import digest
from grpo_practice.config.reading.compose import Override
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.errors import ConfigError
from grpo_practice.user_code import STDOUT_TO_STDERR, UserFunction, find_file, looked_in
from grpo_practice.verify.resolve import VerifyFunction, resolve_callable

if TYPE_CHECKING:
    from grpo_practice.agents.worker import FunctionSource


DISTRIBUTIONS = {"agents": "openai-agents"}
"""Distributions that have another name than the module that agents import."""
FORM = "write `file.py:function` or `package.module:function`"


def source_of(name: str, folder: Path) -> "FunctionSource":
    """Return a function as a worker finds it.

    Raises:
        ConfigError: It is one of the program that began the run, or there is no such file.
    """
    from grpo_practice.agents.worker import FunctionSource

    path = _file_of(name, folder)
    where, attribute = _split(name)
    if where.endswith(".py") and path is not None:
        file = UserFunction(path, attribute, path.read_text("utf-8"))
        return FunctionSource(name, file, "", attribute, path.parent)
    return FunctionSource(name, None, where, attribute, folder)


def check_own(config: AgentConfig, folder: Path) -> None:
    """Raise ConfigError unless the user's program can be had; the message says why."""
    if config.function is not None and config.executor == "ray":
        source_of(config.function, folder)  # what it imports is on the nodes
    elif config.function is not None:
        load_function(config.function, folder)
    elif config.command is not None and config.executor == "local":
        command_of(config, folder)


def sha_of(config: AgentConfig, folder: Path) -> str | None:
    """Return the hash of the function's file, or of the files that a command names.

    None for an agent that is no program. Modules that a program imports are not looked at.

    Raises:
        ConfigError: There is no such file.
    """
    if config.function is not None:
        path = _file_of(config.function, folder)
        return None if path is None else _sha(path)
    files = {word: _sha(path) for word, path in files_of(config, folder)}
    return digest(files).hex() if config.command else None


def files_of(config: AgentConfig, folder: Path) -> list[tuple[str, Path]]:
    """Return the files that a command names, each with its word."""
    named = {word: folder / word for word in config.command or () if not Path(word).is_absolute()}
    return [(word, path) for word, path in named.items() if path.is_file()]


def _sha(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def is_of_program(name: str) -> bool:
    """Return True for a function that only the program which defined it can call."""
    where, _, function = name.rpartition(":")
    return where == "__main__" or "<locals>" in function


def _split(name: str) -> tuple[str, str]:
    where, colon, function = name.rpartition(":")
    if is_of_program(name):
        raise ConfigError(
            f"agent.function {name} is a function of the program that began this run",
            hint="go on from that program, and pass the function as agent, with workers 0",
        )
    if not colon or not where or not function.isidentifier():
        raise ConfigError(f"agent.function {name!r} names no function", hint=FORM)
    return where, function


def _file_of(name: str, folder: Path) -> Path | None:
    """Return the file that a function is in; None where its module has none."""
    where, _ = _split(name)
    if where.endswith(".py"):
        found = find_file(where, folder)
        if found is None:
            hint = looked_in(folder)
            raise ConfigError(f"agent.function {name}: there is no file {where}", hint=hint)
        return found
    _importable(folder)
    spec = _spec_of(where)
    if spec is None:
        raise ConfigError(f"agent.function {name}: there is no module {where}", hint=FORM)
    path = Path(spec.origin) if spec.origin else None
    return path if path and path.is_file() else None


def _spec_of(module: str) -> ModuleSpec | None:
    """Return where a module is; none of the packages that it is in is run."""
    spec, path, parts = None, None, module.split(".")
    for n in range(1, len(parts) + 1):
        name = ".".join(parts[:n])
        found = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next((one for one in found if one is not None), None)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec


def load_function(name: str, folder: Path) -> Callable[..., Any]:
    """Return the function; raise ConfigError where it cannot be loaded in this process."""
    path = _file_of(name, folder)
    where, attribute = _split(name)
    try:
        if where.endswith(".py") and path is not None:
            _importable(path.parent)
            function = _loaded(UserFunction(path, attribute, path.read_text("utf-8")))
        else:
            with STDOUT_TO_STDERR.entered():
                function = getattr(import_module(where), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # whatever the user's file raises
        raise ConfigError(
            f"agent.function {name}: cannot load it: {type(e).__name__}: {e}", hint=_missing(e)
        ) from e
    if not callable(function):
        raise ConfigError(f"agent.function {name}: {attribute} is no function")
    check_call(name, function)
    return function


def _missing(error: BaseException) -> str | None:
    """Return what to install where a module is missing."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    module = error.name.partition(".")[0]
    return f"install it into this environment: pip install {DISTRIBUTIONS.get(module, module)}"


@cache
def _loaded(source: UserFunction) -> Callable[..., Any]:
    """Return the function of a file, which is run once."""
    return source.load()


def check_call(name: str, function: Callable[..., Any]) -> None:
    """Raise ConfigError unless it can be called as an agent, with the arguments of one."""
    try:
        inspect.signature(function).bind("question", "system", object())
    except TypeError as e:
        raise ConfigError(
            f"agent.function {name}: it cannot be called: {e}",
            hint="it is called as function(question, system, context)",
        ) from e
    except ValueError:  # a builtin without a signature
        return


def _importable(folder: Path) -> None:
    """Make the folder's modules importable from now on, also while the function runs."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # last, so that none takes the place of an installed one


def command_of(config: AgentConfig, folder: Path) -> tuple[str, ...]:
    """Return the command; raise ConfigError where its program is not here."""
    command = config.command or ()
    program = command[0]
    found = shutil.which(program) if os.sep not in program else shutil.which(folder / program)
    if found is None:
        raise ConfigError(
            f"agent.command: there is no program {program!r} that can be run",
            hint=f"give its path, relative to {folder}, or a name that PATH has",
        )
    return command


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
