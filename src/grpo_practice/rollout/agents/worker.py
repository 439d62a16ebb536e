"""Worker process of `type: python`: the user's function plays one rollout at a time in it."""

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO, cast

from grpo_practice.core.errors import AgentError
from grpo_practice.core.processes import isolate
from grpo_practice.core.reaper import end_together
from grpo_practice.core.user_code import UserFunction
from grpo_practice.rollout.agents.program_context import (
    MAX_OUTPUT,
    Ended,
    ProgramContext,
    answer_text,
    command_environment,
    exactly,
    raised,
)
from grpo_practice.rollout.agents.program_endpoint import begin

_source: "FunctionSource | None" = None


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function in the form sent to a worker: a module, or a file's content when it was read."""

    name: str
    """Name of the function in the config."""
    file: UserFunction | None
    module: str
    attribute: str
    folder: Path
    """Folder that the function may import modules from."""

    def load(self) -> Callable[..., Any]:
        """Return the function; errors raised by its file are passed on."""
        # Append, so that none of its modules shadows an installed one.
        sys.path.append(str(self.folder))
        if self.file is not None:
            return self.file.load()
        function: Callable[..., Any] = getattr(import_module(self.module), self.attribute)
        return function


def start(secrets: frozenset[str], source: FunctionSource) -> None:
    """Prepare a fresh process; every process it starts ends with it."""
    global _source
    isolate(secrets)
    end_together()
    _source = source


def load() -> str:
    """Load the function, unless it is already loaded; return why it cannot be loaded, or ''."""
    assert _source is not None, "start() knows it"
    try:
        loaded(_source)
    except BaseException as e:  # noqa: BLE001 - the user's file may raise anything
        return exactly(f"{type(e).__name__}: {e}")
    return ""


def play_in_worker(question: str, system: str, context: ProgramContext) -> Ended:
    """Return the answer of the function, or the reason why there is no answer."""
    assert _source is not None, "start() knows it"
    # Load here as well: a process that hangs while loading is killed only if it has a task.
    if why := load():
        return False, f"{_source.name} cannot be loaded: {why}", []
    with suppress(AgentError):  # the rollout may already be over
        begin(context)
    return call(loaded(_source), _source.name, question, system, context)


@cache
def loaded(source: FunctionSource) -> Callable[..., Any]:
    """Return the function, loaded once in this process."""
    return source.load()


def call(
    function: Callable[..., Any], name: str, question: str, system: str, context: ProgramContext
) -> Ended:
    """Call a function in this process, which plays nothing else; the result is as for `play`."""
    process = os.getpid()
    # Set on each call, because every rollout has its own URL and key.
    os.environ.update(command_environment(context, os.environ))
    try:
        with _limited_output(name):
            result = function(question, system, context)
            if inspect.isawaitable(result):
                result = asyncio.run(_awaited(result))
        return True, answer_text(result, f"{name} returned"), context.logged
    except AgentError as e:
        return False, exactly(str(e)), []
    except BaseException as e:  # noqa: BLE001 - sys.exit() of the user's code ends its rollout only
        return False, exactly(str(raised(name, e))), []
    finally:
        if os.getpid() != process:  # a fork made by the function; its parent plays the rollout
            os._exit(0)


async def _awaited(result: Any) -> Any:
    return await result


class _Limited:
    """Output stream of the function, passed on to stderr up to a limit."""

    def __init__(self, name: str, behind: Any) -> None:
        self._name, self._behind, self._left = name, behind, MAX_OUTPUT

    def write(self, text: str) -> int:
        """Write the text; raise AgentError if the output exceeds the limit."""
        self._left -= len(text)
        if self._left < 0:
            raise AgentError(f"{self._name} printed more than {MAX_OUTPUT // 1024:,} KiB")
        self._behind.write(text)  # ignore the result: some streams return None
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


@contextmanager
def _limited_output(name: str) -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = cast("TextIO", _Limited(name, before[1]))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
