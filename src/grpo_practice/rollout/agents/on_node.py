"""Runs a user's program on a node of a cluster.

This module and its imports use only the standard library and `typing_extensions`, since nodes have
none of our other packages.
"""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from grpo_practice.core.errors import AgentError
from grpo_practice.core.reaper import end_together
from grpo_practice.rollout.agents import program_endpoint, worker
from grpo_practice.rollout.agents.command import CommandProgram
from grpo_practice.rollout.agents.program_context import Ended, ProgramContext
from grpo_practice.rollout.agents.worker import FunctionSource


@dataclass(frozen=True, slots=True)
class File:
    """A file that a command names, with its content when read."""

    name: str
    """Path relative to the config's folder."""
    content: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class CommandSource:
    """A command and the files that its command line names."""

    command: tuple[str, ...]
    files: tuple[File, ...]

    @property
    def name(self) -> str:
        """Name of the program, for display."""
        return Path(self.command[0]).name

    def brings(self, name: str) -> bool:
        """Return True if one of the files has that name."""
        return os.sep in name and any(Path(file.name) == Path(name) for file in self.files)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Create a temporary folder with the files, for the duration of the block."""
        with TemporaryDirectory(prefix="grpo-practice-", ignore_cleanup_errors=True) as made:
            for file in self.files:
                path = Path(made, file.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.content)
                path.chmod(file.mode)
            yield Path(made)


Source = FunctionSource | CommandSource
"""A program in the form in which it is sent to a node."""


def play_on_node(source: Source, question: str, system: str, context: ProgramContext) -> Ended:
    """Return the answer of the program, or the reason why there is no answer."""
    if isinstance(source, FunctionSource):
        _alone()
        try:
            function = worker.loaded(source)
        except BaseException as e:  # noqa: BLE001 - the user's file may raise anything
            return False, f"{source.name} cannot be loaded: {type(e).__name__}: {e}", []
        # Only once it is loaded: loading is not charged to the time of the rollout.
        if why := _begin(context):
            return False, why, []
        return worker.call(function, source.name, question, system, context)
    if why := _begin(context):
        return False, why, []
    with source.folder() as folder:
        program = CommandProgram(source.command, folder)
        try:
            answer = asyncio.run(program(question, system, context))
            return True, answer, context.logged
        except AgentError as e:
            return False, str(e), []
        finally:
            program.close()


def probe(source: Source, base_url: str, api_key: str, model: str) -> tuple[float, str]:
    """Return the duration of a request to the address, and why the node cannot play, or ''."""
    try:
        if isinstance(source, FunctionSource):
            worker.loaded(source)
        elif shutil.which(source.command[0]) is None and not source.brings(source.command[0]):
            return 0.0, f"cannot find the program {source.command[0]}"
        return program_endpoint.reach(base_url, api_key, model), ""
    except AgentError as e:
        return 0.0, f"it does not reach {base_url.partition('/r/')[0]}: {e}"
    except BaseException as e:  # noqa: BLE001 - the user's file may raise anything
        return 0.0, f"it cannot load {source.name}: {type(e).__name__}: {e}"


def _begin(context: ProgramContext) -> str:
    """Report that the program begins; return why it cannot, or '' if it can."""
    try:
        program_endpoint.begin(context)
    except AgentError as e:
        return f"it does not reach its model: {e}"
    return ""


@cache
def _alone() -> None:
    """Make processes that functions start end together with this process."""
    end_together()
