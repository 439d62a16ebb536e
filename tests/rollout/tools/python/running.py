"""The tool over the backends that run on this machine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.tools import PythonConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.rollout.tools import Tool
from grpo_practice.rollout.tools.python import open_python
from tests.contract.machines import bwrap_works
from tests.rollout.tools.fakes import SCOPE


@asynccontextmanager
async def opened(backend: str, folder: Path | None = None, **config: Any) -> AsyncIterator[Tool]:
    """Its tool; the test is skipped where the machine has no bwrap that works."""
    if backend == "bwrap" and not bwrap_works():
        pytest.skip("bwrap does not work on this machine")
    checked = PythonConfig.model_validate({"backend": backend, **config})
    async with open_python(checked, folder or Path()) as (tool,):
        yield tool


async def said(tool: Tool, code: str, **more: Any) -> str:
    """What the model reads."""
    return (await tool.run({"code": code, **more}, SCOPE)).text


async def refusal(backend: str, **config: Any) -> ConfigError:
    """Why it does not open."""
    with pytest.raises(ConfigError) as caught:
        async with opened(backend, **config):
            pass
    return caught.value


async def until(holds: Callable[[], object]) -> None:
    """Wait for what no event tells of; a test that waits in vain has failed after a minute."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
