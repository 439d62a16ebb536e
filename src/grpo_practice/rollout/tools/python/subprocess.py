"""The backend `subprocess`: CPython as the current user, without any security boundary."""

import secrets
import tempfile
from pathlib import Path

from grpo_practice.rollout.tools.python.backend import Backend
from grpo_practice.rollout.tools.python.cpython import (
    ENVIRONMENT,
    Launch,
    execute,
    python_arguments,
)
from grpo_practice.rollout.tools.python.interpreter import find
from grpo_practice.rollout.tools.python.probe import try_backend

ABOUT = "files in the working directory are gone after the call"


async def open_subprocess(python: str | None, folder: Path, memory_mb: int) -> Backend:
    """Return the backend after a trial run.

    The path of `python` is relative to `folder`; None is the interpreter that runs this program.

    Raises:
        ConfigError: The backend does not work here.
    """
    interpreter = await find(python, folder)

    async def run(code: str, limit_s: float) -> str:
        # Ignore errors: the program inside may remove the folder at the same time.
        with tempfile.TemporaryDirectory(
            prefix="grpo-practice-", ignore_cleanup_errors=True
        ) as place:
            mark = secrets.token_hex(16)
            start = Launch(
                [interpreter.path, *python_arguments()],
                {"adopt": True, "folder": place},
                ENVIRONMENT | {"HOME": place, "TMPDIR": place, "EXECUTION": mark},
                cwd=place,
                cookie=mark,
            )
            return await execute(start, code, limit_s=limit_s, memory_mb=memory_mb)

    ran, able = await try_backend("subprocess", run, closed=False)
    return Backend(run, f"subprocess, python {ran}", f"{able}; {ABOUT}")
