"""The backend `monty`: a Python interpreter without access to the outside, in workers."""

import ast
import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING

from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.python.backend import Backend, refused
from grpo_practice.rollout.tools.python.captured_output import Written, joined, out_of_time

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, ResourceLimits

MODULES = (
    *("asyncio", "base64", "bisect", "collections", "copy", "csv", "dataclasses", "datetime"),
    *("decimal", "functools", "hashlib", "itertools", "json", "math", "random", "re", "time"),
    *("typing",),
)
MISSING = ("`yield`", "`del`", "inheritance", "`@property`, `@classmethod`, `@staticmethod`")
ABOUT = (
    "a subset of Python 3 without numpy, sympy or any other package, without files and without a"
    f" network; the modules are {', '.join(MODULES)}; it does not know {', '.join(MISSING)}"
)
_AFTER_S = 1.0
"""Seconds after the time limit at which a worker that ignores the limit is killed."""


@asynccontextmanager
async def open_monty(memory_mb: int, at_once: int) -> AsyncIterator[Backend]:
    """Yield the backend after a trial run; end its workers after the block.

    Raises:
        ConfigError: The backend does not work here.
    """
    try:
        from pydantic_monty import AsyncMonty, __version__

        pool = AsyncMonty(max_processes=at_once)
        await pool.__aenter__()
    except (ImportError, OSError, RuntimeError) as e:
        raise refused("monty", str(e), "install pydantic-monty again") from e
    try:

        async def run(code: str, limit_s: float) -> str:
            return await _run(pool, code, limit_s, memory_mb)

        try:
            said = await run("print(6 * 7)", 30)
        except ToolError as e:
            raise refused("monty", str(e)) from e
        if said != "42":
            raise refused("monty", f"a trial run printed: {said[-500:]}")
        yield Backend(run, f"monty {__version__}", ABOUT)
    finally:
        await pool.__aexit__(None, None, None)


async def _run(pool: "AsyncMonty", code: str, limit_s: float, memory_mb: int) -> str:
    """Run code; see `backend.Run`."""
    from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError

    limits: ResourceLimits = {
        "max_feed_duration_secs": limit_s,
        "max_total_sleep_secs": limit_s,
        "max_memory": memory_mb * 2**20,
    }
    written, ended = Written(), ""

    def keep(stream: str, text: str) -> None:
        written.add(text.encode(errors="replace"))
        if written.flooded:
            raise RuntimeError

    shown, moved = showing(code)
    try:
        async with (
            asyncio.timeout(limit_s + _AFTER_S),
            pool.checkout(limits=limits, os_policy={"sleep_system_max": inf}) as session,
        ):
            await session.feed_run(shown, print_callback=keep)
    except TimeoutError:
        ended = out_of_time(limit_s)
    except (MontyRuntimeError, MontySyntaxError) as e:
        error = e.exception()
        if isinstance(error, TimeoutError) and "limit exceeded" in str(error):
            ended = out_of_time(limit_s)
        elif not written.flooded:
            written.add_line(_with_model_lines(e.display(), moved))
    except MontyCrashedError as e:
        raise ToolError(f"the interpreter crashed: {e}. The next call has a new one.") from e
    return joined(written, ended)


def _with_model_lines(text: str, moved: int) -> str:
    """Return a traceback whose line numbers refer to the code that the model wrote."""

    def place(found: re.Match[str]) -> str:
        line = int(found[1])
        return f'File "<code>", line {line - (line > moved)}'

    return re.sub(r'File "<python-input-0>", line (\d+)', place, text)


def showing(code: str) -> tuple[str, int]:
    """Make code print the value of its last expression; return it with the expression's line.

    Printing inside the interpreter keeps large values out of this process. The added code moves the
    expression down by one line.
    """
    # `ast` ends lines at \r as well, and its line numbers must match the split below.
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    # In bytes, since `ast` counts columns in bytes of UTF-8.
    lines = code.encode().split(b"\n")
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        body = []  # monty reports the error
    if not body or not isinstance(body[-1], ast.Expr):
        return code, len(lines)
    last, end = body[-1], body[-1].end_lineno
    assert end is not None
    begin, value = last.lineno - 1, lines[last.lineno - 1 : end]
    value[-1] = value[-1][: last.end_col_offset]
    before = value[0][: last.col_offset] + b"_ = ("
    value[0] = value[0][last.col_offset :]
    lines = [*lines[:begin], before, *value, b")", b"if _ is not None: print(repr(_))"]
    return b"\n".join(lines).decode(), last.lineno
