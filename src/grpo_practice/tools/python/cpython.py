"""CPython in a process of its own: how the code gets in, what is kept of what it writes, its end.

`bwrap`, `docker` and `subprocess` differ in the command that starts it, and in nothing else.
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

from grpo_practice.tools import ToolError
from grpo_practice.tools.python.captured_output import STARTED, Written, joined, out_of_time

PROCESSES = 64
"""Processes and threads of one execution."""
FILE_MB = 64
"""Most MiB of one file that it writes, and of all files where they are kept in memory."""
GRACE_S = 2.0
"""Seconds that an execution has to end of itself."""
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",  # each thread reserves address space, which is limited
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""All that it sees of an environment, beside HOME."""


@cache
def program() -> str:
    """Return the text of what runs inside."""
    return Path(__file__).with_name("sandbox_main.py").read_text("utf-8")


def python_arguments() -> list[str]:
    """Return the arguments of an interpreter: isolated, unbuffered, without bytecode."""
    return ["-I", "-B", "-u", "-X", "utf8", "-c", program()]


@dataclass(frozen=True, slots=True)
class Start:
    """How one execution is started.

    Args:
        command: The whole command line.
        job: What is told to the program inside, beside code and limits.
        env: Its whole environment; None is ours, for a client that passes none of it on.
        cwd: Where it runs.
        cookie: A value in its environment, to find what is left if the program inside is killed.
        kill: A command that kills it where ending the process does not.
        seccomp: What the kernel refuses to it, as bwrap reads it from a descriptor.
    """

    command: Sequence[str]
    job: Mapping[str, object]
    env: Mapping[str, str] | None
    cwd: str | None = None
    cookie: str | None = None
    kill: Sequence[str] = ()
    seccomp: bytes = b""


async def execute(start: Start, code: str, *, limit_s: float, memory_mb: int) -> str:
    """Return what the code wrote, its last value, or why it failed, as a model reads it.

    All that it started is killed when this returns, raises or is cancelled.

    Raises:
        ToolError: It could not be started; the message has what was said instead.
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
            # Left open: the program inside takes a closed stdin for our end, and ends as well.
            process.stdin.write(json.dumps(job).encode() + b"\n")
            # Until the program inside says that it runs, what comes is the
            # complaint of its starter.
            first = await process.stdout.read(1)
            started = first == STARTED
            written.add(b"" if started else first)
            await _read(process.stdout, written)
            # A flood is no longer read: the process would wait for its
            # pipe, and we for the process.
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


async def _spawned(start: Start, command: Sequence[str], passed: Sequence[int]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env=None if start.env is None else dict(start.env),
            cwd=start.cwd,
            # A group of its own: Ctrl-C is for us, and killpg() reaches all of it.
            start_new_session=True,
            pass_fds=passed,
        )
    except OSError as e:
        raise ToolError(f"could not be started: {e.strerror}") from e


@contextlib.contextmanager
def _seccomp(program: bytes) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Yield the arguments that name it, and the descriptor it is read from: for one start alone."""
    if not program:
        yield (), ()
        return
    reader, writer = os.pipe()
    try:
        os.write(writer, program)  # less than a pipe holds
        os.close(writer)
        yield ("--seccomp", str(reader)), (reader,)
    finally:
        os.close(reader)


async def _read(stream: asyncio.StreamReader, written: Written) -> None:
    """Read to the end, or until it is more than an execution may write."""
    while not written.flooded and (data := await stream.read(1 << 16)):
        written.add(data)


async def _ended(process: Process, start: Start) -> None:
    """End it and all that it started: by closing what it listens to, then by force."""
    try:
        await _closed(process)
    finally:  # a second cancellation, too, finds it killed
        forced = process.returncode is None
        if forced:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, SIGKILL)
        if start.cookie is not None and process.returncode != 0:
            # By the environment, which a process keeps that has left the group.
            kill_left(start.cookie)
        process._transport.close()  # type: ignore[attr-defined]  # a pipe may be held open
        if forced:  # its end must reach this event loop: told to a closed one, it is an error
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
    """Kill every process that was started with the cookie in its environment, if any is left."""
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
