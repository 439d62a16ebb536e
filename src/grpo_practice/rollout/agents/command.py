"""`type: command`: runs a process per rollout, with JSON on its stdin and stdout."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from grpo_practice.core.errors import AgentError
from grpo_practice.core.reaper import Reaper
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import brief, visible
from grpo_practice.rollout.agents.program_context import (
    MAX_OUTPUT,
    SAID_CHARS,
    ProgramContext,
    agent_error,
    answer_text,
    command_environment,
    ended,
)

ENDING_S = 1.0
"""Maximum seconds to wait for a command to end when asked to, and for the rest of its output."""


class CommandProgram:
    """A `Program` that runs a command per rollout, with JSON on its stdin and stdout.

    The command and every process it started end with the rollout. They receive the URL and the key
    of this rollout in their environment, and no other key.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = tuple(command), folder
        self._reaper = Reaper()

    def close(self) -> None:
        """Stop the process that would end orphaned commands; no command is still running."""
        self._reaper.close()

    async def __call__(self, question: str, system: str, context: ProgramContext) -> str:
        """Return the `answer` that the command prints."""
        given, talk = {"question": question, "system": system} | context.given, _Talk()
        starting = asyncio.create_task(self._start(context, talk))
        try:
            await asyncio.wait((starting,))
            transport = starting.result()
            stdin = transport.get_pipe_transport(0)
            assert isinstance(stdin, asyncio.WriteTransport)
            # This never waits: the input of a program that does not read it stays buffered.
            stdin.write(json.dumps(given).encode())
            stdin.write_eof()
            await asyncio.wait((talk.exited, talk.flooded), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Wait for the start instead of cancelling it: asyncio would kill only the process,
            # not its children, and then wait until no process holds its pipes any more.
            try:
                await asyncio.wait((starting,))
            finally:
                # A second cancellation may interrupt the wait, so the start may still be
                # running.
                if not starting.done():
                    starting.add_done_callback(self._kill_started)
                elif starting.exception() is None:
                    await self._end(starting.result(), talk)
        return self._read(transport.get_returncode(), talk, context)

    async def _start(self, context: ProgramContext, talk: "_Talk") -> asyncio.SubprocessTransport:
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: talk,
                *self._command,
                cwd=self._folder,
                env=command_environment(context, os.environ),
                # Use a separate process group, so that the children can be ended with the process.
                start_new_session=True,
            )
        except (OSError, ValueError) as e:
            raise AgentError(f"{self._command[0]} cannot be run: {e}") from e
        try:
            self._reaper.add(transport.get_pid())
        except OSError as e:
            _kill(transport.get_pid(), signal.SIGKILL)
            transport.close()
            raise AgentError(f"{self._command[0]} cannot be run: {e}") from e
        return transport

    async def _end(self, transport: asyncio.SubprocessTransport, talk: "_Talk") -> None:
        """End the process and its process group, and read the remaining output."""
        group = transport.get_pid()
        try:
            if not talk.exited.done():
                _kill(group, signal.SIGTERM)
                await asyncio.wait((talk.exited,), timeout=ENDING_S)
        finally:
            # Even if the process has ended: its children are in its group and may still be
            # running.
            _kill(group, signal.SIGKILL)
            self._reaper.discard(group)
            try:
                await asyncio.wait((talk.closed,), timeout=ENDING_S)
            finally:
                # A process that left the group may still hold a pipe, and the wait may be
                # cancelled again.
                transport.close()

    def _kill_started(self, starting: asyncio.Task[asyncio.SubprocessTransport]) -> None:
        """End a process that was started after its rollout was cancelled."""
        if not starting.cancelled() and starting.exception() is None:
            group = starting.result().get_pid()
            _kill(group, signal.SIGKILL)
            self._reaper.discard(group)
            starting.result().close()

    def _read(self, code: int | None, talk: "_Talk", context: ProgramContext) -> str:
        name = Path(self._command[0]).name
        if talk.flooded.done():
            raise AgentError(f"{name} printed more than {MAX_OUTPUT // 1024:,} KiB")
        if code:
            raise agent_error(f"{name} {ended(code)}{talk.complaint}")
        try:
            result = json.loads(_last_line(bytes(talk.out).decode()))
        except (ValueError, RecursionError):
            shown = brief(redactor.text(talk.out.decode(errors="replace")), 200) or "nothing"
            raise agent_error(
                f'{name} printed {shown}, not {{"answer": "…"}}{talk.complaint}'
            ) from None
        if not isinstance(result, dict) or "answer" not in result:
            raise agent_error(f'{name} printed JSON without "answer"{talk.complaint}')
        try:
            for call in result.get("tool_calls") or []:
                context.log_tool(**call)
        except (TypeError, ValueError) as e:
            raise agent_error(f"{name} printed unusable tool_calls: {e}") from None
        return answer_text(result["answer"], f"{name} printed the answer")


class _Talk(asyncio.SubprocessProtocol):
    """Collects the output of a process and notes its end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.out, self._err = bytearray(), bytearray()
        self.exited, self.closed, self.flooded = (loop.create_future() for _ in range(3))

    @property
    def complaint(self) -> str:
        """End of the command's stderr, to be appended to a sentence; '' if stderr is empty."""
        # Redact before cutting: part of a key is not recognised.
        text = redactor.text(visible(self._err.decode(errors="replace")))[-SAID_CHARS:].strip()
        return f": {text}" if text else ""

    @override
    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        """Keep the end of stderr, and stdout up to its limit."""
        assert isinstance(data, bytes)
        if fd == 2:
            self._err = (self._err + data)[-2 * SAID_CHARS :]
        elif len(self.out) + len(data) <= MAX_OUTPUT:
            self.out += data
        elif not self.flooded.done():
            self.flooded.set_result(None)

    @override
    def process_exited(self) -> None:
        """Record that the process ended; processes it started may still be running."""
        self.exited.set_result(None)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Record that all output was read."""
        self.closed.set_result(None)


def _kill(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _last_line(text: str) -> str:
    """Return the whole text if it is JSON, otherwise its last non-empty line."""
    try:
        json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else ""
    return text
