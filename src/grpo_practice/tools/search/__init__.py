"""`search` and `web_qa`: the web, searched and read."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from grpo_practice.calls import Chat, Scope
from grpo_practice.config.tools import SearchConfig
from grpo_practice.errors import ConfigError
from grpo_practice.tools import Tool


@asynccontextmanager
async def open_search(
    config: SearchConfig, ask: Callable[[Scope], Chat]
) -> AsyncIterator[list[Tool]]:
    """Its tools."""
    raise ConfigError("the toolkit search comes in a later version")
    yield []
