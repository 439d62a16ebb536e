"""Runs code in a CPython process: sends the code, captures its output and ends the process.

`bwrap`, `docker` and `subprocess` differ only in the command that starts the process.
"""

import asyncio
import contextlib
import json
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from signal import SIGKILL

from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.python.captured_output import STARTED, Written, joined, out_of_time

PROCESSES = 64
"""Maximum number of processes and threads in one execution."""
FILE_MB = 64
"""Maximum size in MiB of each file written, and of all files together if they are kept in
memory.
"""
GRACE_S = 2.0
"""Seconds that an execution has to end by itself."""
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",  # each thread reserves address space, which is limited
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""All environment variables that the code receives, apart from HOME."""


@cache
def program() -> str:
    """Return the text of the program that runs inside the sandbox."""
    return Path(__file__).with_name("sandbox_main.py").read_text("utf-8")


def python_arguments() -> list[str]:
    """Return the arguments for an isolated, unbuffered interpreter that writes no bytecode."""
    return ["-I", "-B", "-u", "-X", "utf8", "-c", program()]


@dataclass(frozen=True, slots=True)
class Launch:
    """A description of how to start one execution.

    Args:
        command: The whole command line.
        job: Settings for the program inside, in addition to code and limits.
        env: The whole environment; None for ours, if the client does not pass it on.
        cwd: Working directory.
        cookie: A value in its environment that identifies processes left after a kill.
        kill: A command that kills the execution if ending the client process does not.
        seccomp: Filter of system calls, which bwrap reads from a descriptor.
    """

    command: Sequence[str]
    job: Mapping[str, object]
    env: Mapping[str, str] | None
    cwd: str | None = None
    cookie: str | None = None
    kill: Sequence[str] = ()
    seccomp: bytes = b""


async def execute(start: Launch, code: str, *, limit_s: float, memory_mb: int) -> str:
    """Return the output of the code, its last value or its error, in the form a model reads.

    All processes that the code started are killed when this call returns, raises or is cancelled.

    Raises:
        ToolError: The code could not be started; the message contains the output of the starter.
    """
    job = {"code": code, "limit_s": limit_s, "memory_mb": memory_mb} | dict(start.job)
    job |= {"processes": PROCESSES, "file_mb": FILE_MB}
    with _seccomp(start.seccomp) as (more, passed):
        command = [*start.command[:1], *more, *start.command[1:]]
        process = await _spawned(start, command, passed)
    written, stopped, started = Written(), "", False
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(limit_s):
            # Keep stdin open: the program inside ends when its stdin closes.
            process.stdin.write(json.dumps(job).encode() + b"\n")
            # Until the program inside reports that it runs, the output is an
            # error message of the starter.
            first = await process.stdout.read(1)
            started = first == STARTED
            written.add(b"" if started else first)
            # Beyond the limit the rest is not read: the process is stopped below.
            while not written.flooded and (data := await process.stdout.read(1 << 16)):
                written.add(data)
            # After a flood nobody reads any more: the process would wait for
            # its pipe, and we for the process.
            if not written.flooded:
                await process.wait()
    except TimeoutError:
        stopped = out_of_time(limit_s)
    finally:
        await _ended(process, start)
    if not started:
        raise ToolError(f"could not be started: {stopped or written.text().strip() or 'no word'}")
    if not stopped and not written.flooded and process.returncode:
        stopped = "[the interpreter was killed]"
    return joined(written, stopped)


async def _spawned(start: Launch, command: Sequence[str], passed: Sequence[int]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env=None if start.env is None else dict(start.env),
            cwd=start.cwd,
            # Use a separate group: Ctrl-C reaches only us, and killpg() reaches the whole group.
            start_new_session=True,
            pass_fds=passed,
        )
    except OSError as e:
        raise ToolError(f"could not be started: {e.strerror}") from e


@contextlib.contextmanager
def _seccomp(program: bytes) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Yield bwrap's arguments for a filter and the descriptor to read it from, for one start."""
    if not program:
        yield (), ()
        return
    reader, writer = os.pipe()
    try:
        os.write(writer, program)  # fits into a pipe's buffer
        os.close(writer)
        yield ("--seccomp", str(reader)), (reader,)
    finally:
        os.close(reader)


async def _ended(process: Process, start: Launch) -> None:
    """End the process and all its descendants: first by closing its stdin, then by force."""
    try:
        await _closed(process)
    finally:  # also kill it after a second cancellation
        forced = process.returncode is None
        if forced:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, SIGKILL)
        if start.cookie is not None and process.returncode != 0:
            # Found by the environment, which a process keeps when it leaves the group.
            kill_left(start.cookie)
        process._transport.close()  # type: ignore[attr-defined]  # a descendant may hold a pipe open
        if forced:  # wait: the event loop must see its end before it is closed
            await _run(start.kill)
            await _closed(process)


async def _closed(process: Process) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            while await process.stdout.read(1 << 16):
                pass
            await process.wait()


def kill_left(cookie: str) -> None:
    """Kill every remaining process with the cookie in its environment."""
    mark = cookie.encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in entry.read_bytes():
                os.kill(int(entry.parent.name), SIGKILL)


async def _run(command: Sequence[str]) -> None:
    if not command:
        return
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        async with asyncio.timeout(GRACE_S * 5):
            await process.wait()
    except TimeoutError:
        process.kill()
