"""`execute_python_code`: the model's Python code, run where it can do no harm."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpo_practice.config.tools import PythonConfig
from grpo_practice.errors import ConfigError
from grpo_practice.tools import Tool


@asynccontextmanager
async def open_python(config: PythonConfig) -> AsyncIterator[list[Tool]]:
    """Its tools."""
    raise ConfigError("the toolkit python comes in a later version")
    yield []
