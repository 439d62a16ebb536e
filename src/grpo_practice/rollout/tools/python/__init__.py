"""The tool `execute_python_code`, which runs the model's Python code in the configured backend."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from grpo_practice.config.schema.tools import PythonConfig
from grpo_practice.rollout.tools import Tool, ToolError
from grpo_practice.rollout.tools.function import tool_of
from grpo_practice.rollout.tools.python.backend import Backend

_FENCES = {"```", "```python", "```py", "```python3"}
_ABOUT = """\
Run Python code; what it prints, the value of its last expression or its traceback is the result.

Each call begins anew: variables, imports and files of earlier calls are gone. It is {about}.

Args:
    code: The code.
    timeout: Seconds it may run, at most {most:g}.
"""


@asynccontextmanager
async def open_python(config: PythonConfig, folder: Path) -> AsyncIterator[list[Tool]]:
    """Yield the tool, after its backend has run a first piece of code.

    The path of an interpreter is relative to `folder`.

    Raises:
        ConfigError: The backend does not work here; no other backend ever replaces it.
    """
    at_once = config.at_once or os.cpu_count() or 1
    async with AsyncExitStack() as stack:
        backend = await _opened(config, folder, at_once, stack)

        async def execute_python_code(code: str, timeout: float = 30) -> str:  # noqa: ASYNC109
            # Not `<= 0`, which is false for NaN.
            if not timeout > 0:
                raise ToolError("timeout must be greater than 0 seconds")
            said = await backend.run(unfenced(code), min(timeout, config.timeout_s))
            return said or "(no output: print what you want to know)"

        execute_python_code.__doc__ = _ABOUT.format(about=backend.about, most=config.timeout_s)
        yield [
            tool_of(
                execute_python_code,
                version=f"{config.backend}-1",
                runs_in=backend.runs_in,
                limit=asyncio.Semaphore(at_once),
            )
        ]


async def _opened(
    config: PythonConfig, folder: Path, at_once: int, stack: AsyncExitStack
) -> Backend:
    match config.backend:
        case "monty":
            from grpo_practice.rollout.tools.python.monty import open_monty

            return await stack.enter_async_context(open_monty(config.memory_mb, at_once))
        case "bwrap":
            from grpo_practice.rollout.tools.python.bwrap import open_bwrap

            return await open_bwrap(config.python, folder, config.memory_mb)
        case "docker":
            from grpo_practice.rollout.tools.python.docker import open_docker

            assert config.image is not None, "the config has checked it"
            return await open_docker(config.image, config.memory_mb)
        case "subprocess":
            from grpo_practice.rollout.tools.python.subprocess import open_subprocess

            return await open_subprocess(config.python, folder, config.memory_mb)


def unfenced(code: str) -> str:
    """Strip the Markdown fence that a model may put around all of its code."""
    lines = code.strip().split("\n")
    if len(lines) > 2 and lines[0].strip() in _FENCES and lines[-1].strip() == "```":
        return "\n".join(lines[1:-1])
    return code
