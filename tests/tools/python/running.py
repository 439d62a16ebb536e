"""The tool over the backends that run on this machine."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.tools import PythonConfig
from grpo_practice.errors import ConfigError
from grpo_practice.tools import Tool
from grpo_practice.tools.python import open_python
from tests.tools.fakes import SCOPE

CPYTHON = ("bwrap", "subprocess")
ALL = ("monty", *CPYTHON)


@asynccontextmanager
async def opened(backend: str, folder: Path | None = None, **config: Any) -> AsyncIterator[Tool]:
    """Its tool; the test is skipped where the machine has no bwrap that works."""
    if backend == "bwrap" and not bwrap_works():
        pytest.skip("bwrap does not work on this machine")
    checked = PythonConfig.model_validate({"backend": backend, **config})
    async with open_python(checked, folder or Path()) as (tool,):
        yield tool


@cache
def bwrap_works() -> bool:
    """True when the system lets bwrap make namespaces at all."""
    import subprocess

    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return False
    return not subprocess.run([bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"]).returncode


async def said(tool: Tool, code: str, **more: Any) -> str:
    """What the model reads."""
    return (await tool.run({"code": code, **more}, SCOPE)).text


async def refusal(backend: str, **config: Any) -> ConfigError:
    """Why it does not open."""
    with pytest.raises(ConfigError) as caught:
        async with opened(backend, **config):
            pass
    return caught.value


@dataclass(frozen=True, slots=True)
class Living:
    """A process of this machine."""

    number: int
    parent: int
    command: str
    cpu_ticks: int
    """What it has computed, in hundredths of a second."""


def processes() -> list[Living]:
    """All of them but those that have ended and wait to be noticed."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            if fields[0] != "Z":
                found.append(Living(int(folder.name), int(fields[1]), command, int(fields[11])))
    return found


def children(parent: int) -> list[Living]:
    """Those that it has started."""
    return [p for p in processes() if p.parent == parent]


def living(word: str) -> list[Living]:
    """Those with the word in their command line."""
    return [p for p in processes() if word in p.command]


async def until(holds: Callable[[], object]) -> None:
    """Wait for what no event tells of; a test that waits in vain has failed after a minute."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
