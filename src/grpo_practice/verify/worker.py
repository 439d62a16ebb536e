"""What runs in a worker process: it may hang, take memory or die, and nothing else is harmed."""

import asyncio
import fcntl
import inspect
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from grpo_practice.errors import VerifyError
from grpo_practice.redact import hide_output, redactor
from grpo_practice.types import Sample, Verdict
from grpo_practice.user_code import EvaluationSample, UserFunction
from grpo_practice.verify.math import Question
from grpo_practice.verify.user_function import read_result

MEMORY = 1 << 30
"""Bytes a worker may take beyond what it needs to start."""

_function: Callable[..., Any] | None = None


def start(source: UserFunction | None, secrets: frozenset[str]) -> None:
    """Make a fresh process ready: its function loaded, its output apart, its memory limited.

    `secrets` are not printed, and not told in verdicts.
    """
    global _function
    os.setpgid(0, 0)  # a signal for all of the command is for its first process to act on
    _end_with_parent()
    # The loop's handler runs between two bytecodes only; the default one ends C code at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(2, 1)  # what a function prints must not mix with the data on stdout
    redactor.know(secrets)
    hide_output()
    sys.stdout = sys.stderr
    if source is None:
        from grpo_practice.verify import symbolic  # noqa: F401
    else:
        _function = source.load()
    _limit_memory()


def _end_with_parent() -> None:
    """Let the system end this process when the command's has ended, in whatever way.

    Its end closes a pipe, and that sends SIGIO, which ends the process also amid a C function.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    pipe = parent.sentinel
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if not parent.is_alive():  # it was gone before that
        os._exit(1)


def ping() -> None:
    """Show that a worker started."""


def ask_math(question: Question) -> bool | str:
    """Whether the answer equals a gold, or why that cannot be told."""
    from grpo_practice.verify import symbolic

    read = False
    try:
        for gold in question.golds:
            equal = symbolic.matches(gold, question.said, question.boxes)
            if equal:
                return True
            read = read or equal is not None
    except MemoryError:
        return "the answer takes too much memory to compare"
    except BaseException as e:  # noqa: BLE001 - math-verify raises BaseException too
        return f"the answer cannot be compared: {type(e).__name__}"
    return False if read else "the answer cannot be read as mathematics"


def ask_built_in(
    name: str, sample: Sample, response: str, params: Mapping[str, Any]
) -> Verdict | str:
    """Return the verdict of a built-in, or the message of the VerifyError it deserves."""
    from grpo_practice.verify.builtin import BUILT_INS  # workers with a user's function need none

    try:
        verdict: Verdict = BUILT_INS[name].function(sample, response, **params)
    except Exception as e:  # noqa: BLE001 - a MemoryError is this answer's alone
        return f"verify {name} raised {type(e).__name__}: {e}"
    return verdict


def ask_custom(sample: EvaluationSample, params: Mapping[str, Any], where: str) -> Verdict | str:
    """The verdict of the user's function, or the message of the VerifyError it deserves."""
    assert _function is not None, "the worker was started without a function"
    try:
        result = _function(sample, **params)
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        return read_result(result, where)
    except VerifyError as e:
        return str(e)
    except BaseException as e:  # noqa: BLE001 - sys.exit() of a plug-in ends its answer only
        return f"{where} raised {type(e).__name__}: {e}"


async def _awaited(result: Any) -> Any:
    return await result


def _limit_memory() -> None:
    """Let allocations beyond `MEMORY` fail, where the system supports it (Linux)."""
    if sys.platform != "linux":
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
