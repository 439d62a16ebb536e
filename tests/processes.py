"""Processes that a test starts, and waits for however long a busy machine takes."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

HANG_S = 600.0
"""Seconds after which a test hangs for good: a guard, and no test passes or fails by less."""
_MAIN = """
import runpy, signal, sys
# A job in the background, or under nohup, hands down signals that are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
{first}
sys.argv[0] = "grpo-practice"
runpy.run_module("grpo_practice", run_name="__main__")
"""


FIRST = ""
"""Python that runs before the program in a process that plays; tests/conftest.py fills it."""


def program(*words: str, first: str = "") -> list[str]:
    """Return the command line of `grpo-practice WORDS…` that hears signals, after `first`."""
    if {"eval", "practice"} & {*words}:
        first = FIRST + first
    return [sys.executable, "-u", "-c", _MAIN.format(first=first), *words]


def until(true: Callable[[], object], process: "subprocess.Popen[Any] | None" = None) -> None:
    """Return once it is true; fail when the process that makes it true has ended before."""
    deadline = time.monotonic() + HANG_S
    while not true():
        if process is not None and process.poll() is not None and not true():
            raise AssertionError(f"exit code {process.returncode}: {process.communicate()}")
        assert time.monotonic() < deadline
        time.sleep(0.02)


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
