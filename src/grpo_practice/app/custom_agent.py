"""The user's own agent: from its name in a config to what plays, checked before it costs."""

import inspect
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.agents import Agent
from grpo_practice.canonical import digest
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.errors import AgentError, ConfigError
from grpo_practice.text import LOOPBACK
from grpo_practice.user_code import (
    STDOUT_TO_STDERR,
    SharedChange,
    UserFunction,
    find_file,
    is_async,
    looked_in,
)

if TYPE_CHECKING:
    from grpo_practice.agents.custom_agents import Program
    from grpo_practice.agents.worker import FunctionSource
    from grpo_practice.chat_server.proxy import Proxy

DISTRIBUTIONS = {"agents": "openai-agents"}
"""Distributions that have another name than the module that agents import."""
FORM = "write `file.py:function` or `package.module:function`"


@asynccontextmanager
async def open_own(
    config: AgentConfig,
    folder: Path,
    notice: Callable[[str], None],
    function: Callable[..., Any] | None = None,
) -> AsyncIterator[Agent]:
    """Open the user's program, and the address where it asks its model, for the block.

    Proxies of the environment are not between it and this machine. Paths in the config are relative
    to `folder`; the function is given where it is an object of this process.

    Raises:
        ConfigError: The program cannot be had.
    """
    from grpo_practice.agents.command import CommandProgram
    from grpo_practice.agents.custom_agents import CustomAgent, Room
    from grpo_practice.app.program_address import open_proxy

    async with AsyncExitStack() as stack:
        if config.function is not None:
            program, workers = await _open_function(stack, config, folder, notice, function)
        else:
            program, workers = CommandProgram(_command(config, folder), folder), None
            stack.callback(program.close)
        computing = config.concurrency
        if computing is None and workers != 0:
            computing = cores()
        proxy = await stack.enter_async_context(open_proxy(config.proxy, folder))
        if config.proxy.url is not None:
            await _look(proxy, config.proxy.url, notice)
        yield CustomAgent(program, proxy, notice, Room(workers, computing))


async def _look(proxy: "Proxy", url: str, notice: Callable[[str], None]) -> None:
    """Say so where a configured address does not lead here; others may still reach it."""
    from grpo_practice.app.program_address import seconds_to

    try:
        await seconds_to(proxy)
    except AgentError as e:
        notice(f"agent.proxy.url {url} does not lead here, asked from this machine: {e}")


async def _open_function(
    stack: AsyncExitStack,
    config: AgentConfig,
    folder: Path,
    notice: Callable[[str], None],
    function: Callable[..., Any] | None,
) -> tuple["Program", int]:
    """Return the program of a function, and in how many processes it runs; 0 is in this one."""
    from grpo_practice.agents.programs import FunctionProgram, WorkerProgram

    name = config.function or ""
    stack.enter_context(STDOUT_TO_STDERR.entered())
    workers, of_process = config.workers, function is not None
    if function is None:
        function = _load(name, folder)
    if workers is None:
        workers = 0 if of_process or is_async(function) else cores()
    if not workers:
        stack.enter_context(_NO_DETOUR.entered())
        return FunctionProgram(name, function, notice), 0
    program = WorkerProgram(source_of(name, folder), workers)
    stack.push_async_callback(program.close)
    await program.start()
    return program, workers


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


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _no_detour() -> Iterator[None]:
    """Let a function's own client reach this machine without a proxy in between, in the block."""
    before = {name: os.environ.get(name) for name in ("NO_PROXY", "no_proxy")}
    known = [text for text in before.values() if text]
    for name in before:
        # In both spellings: client libraries differ in which they read.
        os.environ[name] = ",".join([*known, LOOPBACK])
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text


_NO_DETOUR = SharedChange(_no_detour)


def check_own(config: AgentConfig, folder: Path) -> None:
    """Raise ConfigError unless the user's program can be had; the message says why."""
    if config.function is not None:
        _load(config.function, folder)
    elif config.command is not None:
        _command(config, folder)


def sha_of(config: AgentConfig, folder: Path) -> str | None:
    """Return the hash of the function's file, or of the files that a command names.

    None for an agent that is no program. Modules that a program imports are not looked at.

    Raises:
        ConfigError: There is no such file.
    """
    if config.function is not None:
        path = _file_of(config.function, folder)
        return None if path is None else _sha(path)
    named = {word: folder / word for word in config.command or () if not Path(word).is_absolute()}
    files = {word: _sha(path) for word, path in named.items() if path.is_file()}
    return digest(files).hex() if config.command else None


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
            hint="go on from that program, and pass the function as agent",
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


def _load(name: str, folder: Path) -> Callable[..., Any]:
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


def _command(config: AgentConfig, folder: Path) -> tuple[str, ...]:
    command = config.command or ()
    program = command[0]
    found = shutil.which(program) if os.sep not in program else shutil.which(folder / program)
    if found is None:
        raise ConfigError(
            f"agent.command: there is no program {program!r} that can be run",
            hint=f"give its path, relative to {folder}, or a name that PATH has",
        )
    return command
