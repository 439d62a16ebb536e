"""Tools of servers that speak the Model Context Protocol."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from grpo_practice.config.tools import McpToolkit
from grpo_practice.errors import ConfigError
from grpo_practice.tools import Tool


@asynccontextmanager
async def open_mcp(toolkit: McpToolkit, folder: Path) -> AsyncIterator[list[Tool]]:
    """Its tools."""
    raise ConfigError("the toolkit mcp comes in a later version")
    yield []
