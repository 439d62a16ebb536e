"""The user's own code: agents and verify functions, as files or as Python functions."""

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

from grpo_practice.config.reading.compose import Override
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import digest
from grpo_practice.core.user_code import STDOUT_TO_STDERR, UserFunction, find_file, looked_in
from grpo_practice.verify.resolve import VerifyFunction, resolve_callable

if TYPE_CHECKING:
    from grpo_practice.rollout.agents.worker import FunctionSource


DISTRIBUTIONS = {"agents": "openai-agents"}
"""Module that agents import → distribution with a different name."""
FORM = "write `file.py:function` or `package.module:function`"


def source_of(name: str, folder: Path) -> "FunctionSource":
    """Return the source from which a worker can load a function.

    Raises:
        ConfigError: The function exists only in the program that began the run, or the file is
            missing.
    """
    from grpo_practice.rollout.agents.worker import FunctionSource

    path = _file_of(name, folder)
    where, attribute = _split(name)
    if where.endswith(".py") and path is not None:
        file = UserFunction(path, attribute, path.read_text("utf-8"))
        return FunctionSource(name, file, "", attribute, path.parent)
    return FunctionSource(name, None, where, attribute, folder)


def check_own(config: AgentConfig, folder: Path) -> None:
    """Raise ConfigError, with the reason, unless the user's program can be found and loaded."""
    if config.function is not None and config.executor == "ray":
        source_of(config.function, folder)  # not loaded: its imports exist only on the nodes
    elif config.function is not None:
        load_function(config.function, folder)
    elif config.command is not None and config.executor == "local":
        command_of(config, folder)


def sha_of(config: AgentConfig, folder: Path) -> str | None:
    """Return the hash of the function's file, or of the files that a command names.

    Returns None for an agent that is not a program. Modules imported by a program are not hashed.

    Raises:
        ConfigError: The file does not exist.
    """
    if config.function is not None:
        path = _file_of(config.function, folder)
        return None if path is None else _sha(path)
    files = {word: _sha(path) for word, path in files_of(config, folder)}
    return digest(files).hex() if config.command else None


def files_of(config: AgentConfig, folder: Path) -> list[tuple[str, Path]]:
    """Return the files that a command refers to, each with the word that refers to it."""
    named = {word: folder / word for word in config.command or () if not Path(word).is_absolute()}
    return [(word, path) for word, path in named.items() if path.is_file()]


def _sha(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def is_of_program(name: str) -> bool:
    """Return True for a function that can only be called by the program that defined it."""
    where, _, function = name.rpartition(":")
    return where == "__main__" or "<locals>" in function


def _split(name: str) -> tuple[str, str]:
    where, colon, function = name.rpartition(":")
    if is_of_program(name):
        raise ConfigError(
            f"agent.function {name} is a function of the program that began this run",
            hint="resume from that program, and pass the function as agent, with workers 0",
        )
    if not colon or not where or not function.isidentifier():
        raise ConfigError(f"agent.function {name!r} names no function", hint=FORM)
    return where, function


def _file_of(name: str, folder: Path) -> Path | None:
    """Return the file that defines a function; None if its module has no file."""
    where, _ = _split(name)
    if where.endswith(".py"):
        found = find_file(where, folder)
        if found is None:
            hint = looked_in(folder)
            raise ConfigError(f"agent.function {name}: there is no file {where}", hint=hint)
        return found
    _importable(folder)  # the module may be next to the config
    spec = _spec_of(where)
    if spec is None:
        raise ConfigError(f"agent.function {name}: there is no module {where}", hint=FORM)
    path = Path(spec.origin) if spec.origin else None
    return path if path and path.is_file() else None


def _spec_of(module: str) -> ModuleSpec | None:
    """Return the spec of a module, without running the packages that contain it."""
    # `importlib.util.find_spec` would import the parent packages, and so run their code.
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
    """Return the function; raise ConfigError if it cannot be loaded in this process."""
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
    except BaseException as e:  # the user's file may raise anything, SystemExit included
        raise ConfigError(
            f"agent.function {name}: cannot load it: {type(e).__name__}: {e}", hint=_missing(e)
        ) from e
    if not callable(function):
        raise ConfigError(f"agent.function {name}: {attribute} is not a function")
    check_call(name, function)
    return function


def _missing(error: BaseException) -> str | None:
    """Return a hint for installing a missing module."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    module = error.name.partition(".")[0]
    return f"install it into this environment: pip install {DISTRIBUTIONS.get(module, module)}"


@cache
def _loaded(source: UserFunction) -> Callable[..., Any]:
    """Return a function from a file, which is executed only once."""
    return source.load()


def check_call(name: str, function: Callable[..., Any]) -> None:
    """Raise ConfigError unless the function accepts the arguments of an agent."""
    # Bind the arguments now, because a call with wrong arguments would fail only in the first paid
    # rollout.
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
    """Keep the folder's modules importable from now on, including while the function runs."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # last, so that installed modules take precedence


def command_of(config: AgentConfig, folder: Path) -> tuple[str, ...]:
    """Return the command; raise ConfigError if its program is not installed here."""
    command = config.command or ()
    program = command[0]
    # As in a shell, only a name without a separator is looked up on PATH.
    found = shutil.which(program) if os.sep not in program else shutil.which(folder / program)
    if found is None:
        raise ConfigError(
            f"agent.command: cannot find an executable program {program!r}",
            hint=f"give its path, relative to {folder}, or a name on PATH",
        )
    return command


@dataclass(frozen=True, slots=True)
class AgentFunction:
    """An agent as a Python function, called in the same way as with `type: python`."""

    name: str
    """Module and name, recorded as `agent.function`."""
    function: Callable[..., Any]
    sha: str
    """Hash of the source code, which identifies the agent."""


@dataclass(frozen=True, slots=True)
class PythonObjects:
    """Functions passed in a request; None for a function that the configuration names."""

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
        # If the function needs a judge, name it like a function in a file, because the config
        # provides a judge only for such names.
        return f"{module}.py:{name}" if self.verify.asks_judge else name

    @property
    def overrides(self) -> list[Override]:
        """Configuration keys that record the names of these functions."""
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
    """Return the last part of `module:outer.<locals>.name`, in a form suitable for run names."""
    return re.sub(r"\W+", "_", name.rpartition(":")[2].rpartition(".")[2])


def python_objects(agent: object, verify: object) -> PythonObjects:
    """Return wrappers for the arguments that are functions; see `agent_function`."""
    return PythonObjects(
        agent_function(agent) if callable(agent) else None,
        resolve_callable(verify, {}) if callable(verify) else None,
    )


def agent_function(function: Callable[..., Any]) -> AgentFunction:
    """Return the function as an agent.

    Raises:
        ConfigError: The function has no source, or cannot be called as an agent.
    """
    name = f"{function.__module__}:{getattr(function, '__qualname__', type(function).__name__)}"
    check_call(name, function)
    # Values from outside the function, such as globals, are not part of its source, so if they
    # change, the agent still counts as the same.
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as e:
        raise ConfigError(
            f"agent {name}: its source, which identifies it, is not available: {e}",
            hint="define it with `def` in a file or a notebook cell, or name it in the config:"
            " agent.function: file.py:function",
        ) from e
    return AgentFunction(name, function, sha256(source.encode()).hexdigest())
