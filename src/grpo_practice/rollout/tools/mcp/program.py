"""A server program that exchanges lines: the library's `stdio_client` with a line limit."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TextIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from grpo_practice.core.reaper import Reaper
from grpo_practice.rollout.tools.mcp.limited_body import MOST

Received = SessionMessage | Exception
_CHUNK = 64 * 1024
_FLUSH_S = 0.5
"""Maximum seconds to write the messages that were already accepted."""
_GRACE_S = 2.0
"""Seconds that the program has to end after its stdin is closed, and again after each signal."""


@asynccontextmanager
async def open_program(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    stderr: TextIO,
    reaper: Reaper,
    *,
    on_oversize: Callable[[], None],
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[Received], MemoryObjectSendStream[SessionMessage]]
]:
    """Start a program in its own process group; yield streams for receiving and sending messages.

    A program that writes a line of more than `MOST` bytes is killed: `on_oversize` is called, and
    the stream of messages ends.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=stderr,
        env=env,
        cwd=cwd,
        start_new_session=True,
        limit=MOST,
    )
    # No await before the task group: a cancellation there would leave the program running.
    to_client, received = anyio.create_memory_object_stream[Received](0)
    sent, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    written = asyncio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, process, to_client, on_oversize)
        tasks.start_soon(_send, process, from_client, to_client, written)
        try:
            reaper.add(process.pid)
            yield received, sent
        finally:
            # Shielded: a cancellation must not leave a program behind. Each wait is bounded.
            with anyio.CancelScope(shield=True):
                received.close()
                sent.close()
                with suppress(TimeoutError):
                    await asyncio.wait_for(written.wait(), _FLUSH_S)
                await _end(process)
                reaper.discard(process.pid)
            tasks.cancel_scope.cancel()


async def _receive(
    process: Process, to_client: MemoryObjectSendStream[Received], on_oversize: Callable[[], None]
) -> None:
    """Forward each line as a message until the output ends or the receiver is closed."""
    stdout = process.stdout
    assert stdout is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with to_client:
            try:
                while True:
                    await to_client.send(_message(await stdout.readuntil()))
            except asyncio.LimitOverrunError:
                on_oversize()
                # Kill it immediately: the program may write for as long as its output is read.
                _signal(process, signal.SIGKILL)
            except (asyncio.IncompleteReadError, OSError):
                pass
    # A program whose pipe is full blocks on write and does not react to a closed stdin.
    with anyio.CancelScope(shield=True), suppress(OSError):
        while await stdout.read(_CHUNK):
            pass


async def _send(
    process: Process,
    from_client: MemoryObjectReceiveStream[SessionMessage],
    to_client: MemoryObjectSendStream[Received],
    written: asyncio.Event,
) -> None:
    """Write each message as a line until the stream ends or the program closes its stdin."""
    assert process.stdin is not None
    try:
        async with from_client:
            async for sent in from_client:
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
                process.stdin.write(line.encode(errors="replace"))
                await process.stdin.drain()
    except OSError:
        # The program may still be running: without this, calls would wait for ever.
        await to_client.aclose()
    finally:
        written.set()


def _message(line: bytes) -> Received:
    try:
        text = line.decode(errors="replace")
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError as e:
        return e


async def _end(process: Process) -> None:
    """Close the program's stdin, wait for it to end, then kill its whole process group."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            _signal(process, number)
        if await _ended(process):
            break
    # Its descendants are in its group, and the group's id is not reused while any of them lives.
    _signal(process, signal.SIGKILL)
    # The transport stays open while a descendant holds the pipe; it has no public name.
    process._transport.close()  # type: ignore[attr-defined]


async def _ended(process: Process) -> bool:
    # Not `wait()`: that also waits for the pipes, which a descendant may hold open.
    with anyio.move_on_after(_GRACE_S):
        while process.returncode is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return process.returncode is not None


def _signal(process: Process, number: signal.Signals) -> None:
    # The program leads its group, and the group's id is not reused while any member lives.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
