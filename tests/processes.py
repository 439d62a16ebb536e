"""Processes that a test starts, and waits for however long a busy machine takes."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine, as the system lists it."""

    pid: int
    parent: int
    state: str
    seconds: float
    """How long it has computed."""
    command: str


def processes() -> list[Process]:
    """Return those that run now, from `/proc`, or from `ps` where that is missing."""
    found = [*_of_proc()] or [*_of_ps()]
    return [process for process in found if not process.state.startswith("Z")]


def alive(pid: int) -> bool:
    """Return True if the process has not ended."""
    return any(process.pid == pid for process in processes())


def _of_proc() -> Iterator[Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            pid, ticks = int(folder.name), int(words[11])
            yield Process(pid, int(words[1]), words[0], ticks / 100, command)


def _of_ps() -> Iterator[Process]:
    said = subprocess.check_output(["ps", "-axww", "-o", "pid=,ppid=,stat=,time=,command="])
    for line in said.decode(errors="replace").splitlines():
        pid, parent, state, spent, command = (*line.split(None, 4), "")[:5]
        minutes, seconds = spent.split(":")[-2:]
        yield Process(int(pid), int(parent), state, 60 * int(minutes) + float(seconds), command)


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
