"""A function or a command of the user's own, as a `Program`."""

import asyncio
import inspect
import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from grpo_practice import user_code
from grpo_practice.agents import being_cancelled
from grpo_practice.agents.custom_agents import GRACE_S, ProgramContext
from grpo_practice.canonical import clean
from grpo_practice.errors import AgentError
from grpo_practice.text import brief, cut, visible

MAX_OUTPUT = 2**20
"""Limit in bytes of an answer, and of all that a command prints."""
SAID_CHARS = 2_000
"""Characters that are kept of a program's own words about its failure."""
ENDING_S = 0.2
"""Seconds for a thread to end by itself after its rollout."""
PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
"""Variables of our environment that a command gets; no keys."""


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
            theirs = (
                f" at {Path(frame.f_code.co_filename).name}:{line}"
                for frame, line in traceback.walk_tb(e.__traceback__)
                if frame.f_code.co_filename not in (__file__, user_code.__file__)
            )
            where = next(theirs, "")  # the outermost place in the user's code
            raise _error(f"{self._name} raised {type(e).__name__}{where}: {e}") from e
        return _answer(result, f"{self._name} returned")

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


class CommandProgram:
    """A `Program` that runs a command for each rollout: JSON on its stdin, JSON on its stdout.

    The command and all that it started end with the rollout. The environment has an address and a
    key that serve this rollout, and no other key.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = tuple(command), folder

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
                    starting.add_done_callback(_kill_started)
                elif starting.exception() is None:
                    await _end(starting.result(), talk)
        return self._read(transport.get_returncode(), talk)

    async def _start(self, context: ProgramContext, talk: "_Talk") -> asyncio.SubprocessTransport:
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: talk,
                *self._command,
                cwd=self._folder,
                env=environment(context, os.environ),
                start_new_session=True,
            )
        except (OSError, ValueError) as e:
            raise AgentError(f"{self._command[0]} cannot be run: {e}") from e
        return transport

    def _read(self, code: int | None, talk: "_Talk") -> str:
        name = Path(self._command[0]).name
        if talk.flooded.done():
            raise AgentError(f"{name} printed more than {MAX_OUTPUT // 1024:,} KiB")
        if code:
            how = f"ended with exit code {code}"
            if code < 0:
                names = {number.value: number.name for number in signal.Signals}
                how = f"was ended by {names.get(-code, f'signal {-code}')}"
            raise _error(f"{name} {how}{talk.complaint}")
        try:
            result = json.loads(_last_line(bytes(talk.out).decode()))
        except (ValueError, RecursionError):
            shown = brief(talk.out.decode(errors="replace"), 200) or "nothing"
            raise _error(f'{name} printed {shown}, not {{"answer": "…"}}{talk.complaint}') from None
        if not isinstance(result, dict) or "answer" not in result:
            raise _error(f'{name} printed JSON without "answer"{talk.complaint}')
        return _answer(result["answer"], f"{name} printed the answer")


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


def environment(context: ProgramContext, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command, so that OpenAI clients find the rollout's model."""
    kept = {name: ours[name] for name in PASSED if name in ours}
    return kept | {
        "OPENAI_BASE_URL": context.base_url,
        "OPENAI_API_BASE": context.base_url,
        "OPENAI_API_KEY": context.api_key,
        "OPENAI_MODEL": context.model,
    }


async def _end(transport: asyncio.SubprocessTransport, talk: _Talk) -> None:
    """End the process and all in its group, and read their output."""
    group = transport.get_pid()
    try:
        if not talk.exited.done():
            _kill(group, signal.SIGTERM)
            await asyncio.wait((talk.exited,), timeout=GRACE_S / 5)
    finally:
        # Also where the process has ended: what it started is in its group and may go on.
        _kill(group, signal.SIGKILL)
        try:
            await asyncio.wait((talk.closed,), timeout=GRACE_S / 5)
        finally:  # one that left the group may hold a pipe; and a second cancellation may come
            transport.close()


def _kill_started(starting: asyncio.Task[asyncio.SubprocessTransport]) -> None:
    """End a process that nobody waits for any more, once it has been started."""
    if not starting.cancelled() and starting.exception() is None:
        _kill(starting.result().get_pid(), signal.SIGKILL)
        starting.result().close()


def _kill(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _answer(value: Any, what: str) -> str:
    """Return the answer as text, '' for None; raise AgentError for anything else."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise AgentError(f"{what} {type(value).__name__}, not text")
    if len(value) > MAX_OUTPUT:
        raise AgentError(f"{what} more than {MAX_OUTPUT // 1024:,} KiB")
    return value


def _last_line(text: str) -> str:
    """Return the text where it is JSON as a whole, else its last line that is not empty."""
    try:
        json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else ""
    return text


def _error(text: str) -> AgentError:
    return AgentError(cut(clean(text), SAID_CHARS + 500))
