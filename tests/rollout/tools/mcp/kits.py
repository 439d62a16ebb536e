"""Toolkits whose servers are programs in this folder, and what tests ask of them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from grpo_practice.config.schema.tools import McpToolkit
from grpo_practice.rollout.tools import Tool
from grpo_practice.rollout.tools.mcp import open_mcp
from tests.processes import HANG_S
from tests.rollout.tools.fakes import SCOPE

HERE = Path(__file__).parents[3] / "contract"


def kit(*args: str, program: str = "crude.py", env: Any = None, **more: Any) -> McpToolkit:
    config = {"command": sys.executable, "args": [str(HERE / program), *args], "env": env or {}}
    return McpToolkit.model_validate({"name": "kit", "mode": "mcp", "config": config} | more)


@asynccontextmanager
async def opened(toolkit: McpToolkit, folder: Path = HERE) -> AsyncIterator[dict[str, Tool]]:
    async with open_mcp(toolkit, folder) as tools:
        yield {tool.name: tool for tool in tools}


async def ask(tool: Tool, **given: Any) -> str:
    return (await tool.run(given, SCOPE)).text


async def until(holds: Callable[[], object]) -> None:
    """Wait for what no event tells of; a test that waits in vain hangs."""
    async with asyncio.timeout(HANG_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
