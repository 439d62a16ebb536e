"""A function or a command of the user's own, as a `Program`."""

import asyncio
import inspect
import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from grpo_practice import user_code
from grpo_practice.agents import being_cancelled, worker
from grpo_practice.agents.called import (
    MAX_OUTPUT,
    PASSED,
    SAID_CHARS,
    agent_error,
    answer_text,
    command_environment,
    ended,
    raised,
)
from grpo_practice.agents.custom_agents import GRACE_S, ProgramContext
from grpo_practice.agents.reaper import Reaper
from grpo_practice.agents.worker import FunctionSource
from grpo_practice.errors import AgentError, ConfigError
from grpo_practice.processes import CannotStartError, Pool, WorkerDiedError
from grpo_practice.text import LOOPBACK, brief, visible

ENDING_S = 0.2
"""Seconds for a thread to end by itself after its rollout."""


class FunctionProgram:
    """A `Program` that calls `function(question, system, context)`.

    An async function runs on the event loop and is cancelled. Any other runs in a thread of its
    own, which cannot be stopped: it is left to itself, and `notice` says so once.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], notice: Callable[[str], None]
    ) -> None:
        self._name, self._function, self._notice = name, function, notice
        self._async = user_code.is_async(function)
        self._noticed = False

    async def __call__(self, question: str, system: str, context: ProgramContext) -> str:
        """Return the function's answer."""
        given = (question, system, context)
        try:
            result = self._function(*given) if self._async else await self._in_thread(given)
            if inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            raise AgentError(f"{self._name} raised CancelledError") from None
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            raise raised(self._name, e) from e
        return answer_text(result, f"{self._name} returned")

    async def _in_thread(self, given: tuple[Any, ...]) -> Any:
        done = user_code.start_thread(partial(self._function, *given))
        try:
            await asyncio.wait((done,))  # unlike `await done`, a cancellation leaves it pending
        except asyncio.CancelledError:
            try:
                await asyncio.wait((done,), timeout=ENDING_S)  # one that just fails needs no notice
            finally:
                if not done.done() and not self._noticed:
                    self._noticed = True
                    self._notice(
                        f"{self._name} was still running when its rollout ended; a thread cannot be"
                        " stopped, so it goes on (an async function would be cancelled)"
                    )
            raise
        result, error = done.result()
        if error is not None:
            raise error
        return result


class WorkerProgram:
    """A `Program` that calls a function in a process of its own, of which there are several.

    The process and all that it started end where the rollout is over first. The environment is
    that of a command.
    """

    def __init__(self, source: FunctionSource, workers: int) -> None:
        self._source = source
        kept = {key: value for key, value in os.environ.items() if key in PASSED}
        self._pool = Pool(
            worker.start,
            source,
            workers=workers,
            timeout_s=None,  # the rollout's own clock cancels it
            preload=[worker.__name__],
            environment=kept | {"NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK},
        )

    async def start(self) -> None:
        """Start the workers; raise ConfigError where the function cannot be had in one."""
        try:
            await self._pool.start()
        except CannotStartError as e:
            raise ConfigError(
                f"agent.function {self._source.name}: a worker process cannot have it: {e}",
                hint=e.hint or "agent.workers: 0 calls it in this process",
            ) from e

    async def close(self) -> None:
        """End all workers, and what they have started."""
        await self._pool.close()

    async def __call__(self, question: str, system: str, context: ProgramContext) -> str:
        """Return the function's answer."""
        name = self._source.name
        try:
            answered, text = await self._pool.run(worker.play, name, question, system, context)
        except WorkerDiedError as e:
            killed = " (it may have taken more memory than there is)" if e.code == -9 else ""
            raise agent_error(f"the process of {name} {ended(e.code)}{killed}") from e
        except CannotStartError as e:
            raise agent_error(f"no process of {name} starts any more: {e}") from e
        if not answered:
            raise AgentError(text)
        return text


class CommandProgram:
    """A `Program` that runs a command for each rollout: JSON on its stdin, JSON on its stdout.

    The command and all that it started end with the rollout. The environment has an address and a
    key that serve this rollout, and no other key.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = tuple(command), folder
        self._reaper = Reaper()

    def close(self) -> None:
        """End what would end commands that outlive this process: none runs any more."""
        self._reaper.close()

    async def __call__(self, question: str, system: str, context: ProgramContext) -> str:
        """Return the `answer` that it prints."""
        given, talk = {"question": question, "system": system} | asdict(context), _Talk()
        starting = asyncio.create_task(self._start(context, talk))
        try:
            await asyncio.wait((starting,))
            transport = starting.result()
            stdin = transport.get_pipe_transport(0)
            assert isinstance(stdin, asyncio.WriteTransport)
            stdin.write(json.dumps(given).encode())
            stdin.write_eof()
            await asyncio.wait((talk.exited, talk.flooded), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Not cancelled but waited for: asyncio would kill the process alone, not what it has
            # started, and then wait until nobody holds its pipes any more.
            try:
                await asyncio.wait((starting,))
            finally:  # a second cancellation may come while it waits, also for what is done
                if not starting.done():
                    starting.add_done_callback(self._kill_started)
                elif starting.exception() is None:
                    await self._end(starting.result(), talk)
        return self._read(transport.get_returncode(), talk)

    async def _start(self, context: ProgramContext, talk: "_Talk") -> asyncio.SubprocessTransport:
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: talk,
                *self._command,
                cwd=self._folder,
                env=command_environment(context, os.environ),
                start_new_session=True,
            )
        except (OSError, ValueError) as e:
            raise AgentError(f"{self._command[0]} cannot be run: {e}") from e
        self._reaper.add(transport.get_pid())
        return transport

    async def _end(self, transport: asyncio.SubprocessTransport, talk: "_Talk") -> None:
        """End the process and all in its group, and read their output."""
        group = transport.get_pid()
        try:
            if not talk.exited.done():
                _kill(group, signal.SIGTERM)
                await asyncio.wait((talk.exited,), timeout=GRACE_S / 5)
        finally:
            # Also where the process has ended: what it started is in its group and may go on.
            _kill(group, signal.SIGKILL)
            self._reaper.discard(group)
            try:
                await asyncio.wait((talk.closed,), timeout=GRACE_S / 5)
            finally:  # one that left the group may hold a pipe; and a second cancellation may come
                transport.close()

    def _kill_started(self, starting: asyncio.Task[asyncio.SubprocessTransport]) -> None:
        """End a process that nobody waits for any more, once it has been started."""
        if not starting.cancelled() and starting.exception() is None:
            group = starting.result().get_pid()
            _kill(group, signal.SIGKILL)
            self._reaper.discard(group)
            starting.result().close()

    def _read(self, code: int | None, talk: "_Talk") -> str:
        name = Path(self._command[0]).name
        if talk.flooded.done():
            raise AgentError(f"{name} printed more than {MAX_OUTPUT // 1024:,} KiB")
        if code:
            raise agent_error(f"{name} {ended(code)}{talk.complaint}")
        try:
            result = json.loads(_last_line(bytes(talk.out).decode()))
        except (ValueError, RecursionError):
            shown = brief(talk.out.decode(errors="replace"), 200) or "nothing"
            raise agent_error(
                f'{name} printed {shown}, not {{"answer": "…"}}{talk.complaint}'
            ) from None
        if not isinstance(result, dict) or "answer" not in result:
            raise agent_error(f'{name} printed JSON without "answer"{talk.complaint}')
        return answer_text(result["answer"], f"{name} printed the answer")


class _Talk(asyncio.SubprocessProtocol):
    """The output of a process, and its end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.out, self._err = bytearray(), bytearray()
        self.exited, self.closed, self.flooded = (loop.create_future() for _ in range(3))

    @property
    def complaint(self) -> str:
        """End of its stderr, to be put behind a sentence; '' for nothing."""
        text = visible(self._err.decode(errors="replace")).strip()
        return f": {text}" if text else ""

    @override
    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        """Keep the end of stderr, and stdout up to its limit."""
        assert isinstance(data, bytes)
        if fd == 2:
            self._err = (self._err + data)[-SAID_CHARS:]
        elif len(self.out) + len(data) <= MAX_OUTPUT:
            self.out += data
        elif not self.flooded.done():
            self.flooded.set_result(None)

    @override
    def process_exited(self) -> None:
        """Note its end; what it started may still run."""
        self.exited.set_result(None)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Note that all its output was read."""
        self.closed.set_result(None)


def _kill(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _last_line(text: str) -> str:
    """Return the text where it is JSON as a whole, else its last line that is not empty."""
    try:
        json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else ""
    return text
