"""One connection to a server: opened and closed by a task of its own, called from any."""

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import anyio
from mcp import Client, MCPError
from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT, CallToolResult
from mcp.types import Tool as ServerTool

from grpo_practice.errors import AgentError, ConfigError, GrpoPracticeError
from grpo_practice.tools import Output, ToolError
from grpo_practice.tools.mcp.listing import every_tool
from grpo_practice.tools.mcp.result_check import ResultChecker, UnfitError
from grpo_practice.tools.mcp.results import output_of
from grpo_practice.tools.mcp.transport import Notes, Reach

START_S = 60.0
"""Until a server has started and listed its tools; one that installs itself may take long."""
_LEAVE_S = 2.0
"""For a server to be told that it is over."""
_HTTP_FAILED = "Server returned an error response"
"""How the library puts an HTTP status that says nothing else."""


class UnreachableError(GrpoPracticeError):
    """The server could not be started, or does not answer as one."""


class LostError(ToolError):
    """The server gave no answer and will give none here: it died, or has forgotten us.

    `unheard`: whether the call was surely not begun.
    """

    def __init__(self, message: str, *, unheard: bool) -> None:
        super().__init__(message)
        self.unheard = unheard


class SlowError(ToolError):
    """The server gave no answer in time."""


class Connection:
    """A server that answers. Made by `open`; called from any task, any number of times at once."""

    def __init__(self, name: str, reach: Reach, timeout_s: float, checker: ResultChecker) -> None:
        self.name, self._timeout_s, self._checker = name, timeout_s, checker
        self.notes = Notes()
        self.tools: Sequence[ServerTool] = ()
        """Tools that the server listed when it was opened."""
        self.answers = 0
        """Calls that it answered, if only with an error."""
        self.users = 0
        """Calls under way."""
        self._reach, self._leave = reach, asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + START_S)
        # A task for as long as the connection: whatever the library opens
        # must be closed by the task that opened it.
        self._task = asyncio.create_task(self._live())

    @classmethod
    async def open(
        cls, name: str, reach: Reach, timeout_s: float, checker: ResultChecker
    ) -> "Connection":
        """Connect, and list the server's tools.

        Raises:
            UnreachableError: It did not.
            ConfigError: It cannot do what the config asks of it.
        """
        found = cls(name, reach, timeout_s, checker)
        try:
            # A cancelled await would cancel the future itself, which `_live` and `close` share.
            await asyncio.shield(found._ready)
        except BaseException:
            await found.close()
            raise
        return found

    @property
    def client(self) -> Client:
        """Session that speaks to the server."""
        return self._ready.result()

    async def _live(self) -> None:
        error: Exception = TimeoutError(f"it did not get ready in {START_S:g} s")
        try:
            with self._scope:
                async with self._reach(self.notes) as client:
                    # The library validates on the event loop, where nothing could stop a
                    # server's pattern, nor Ctrl-C; `call` has that done in a worker.
                    client.session.validate_tool_result = _leave_to_checker  # type: ignore[method-assign]
                    self.tools = await every_tool(client)
                    # The deadline was for the start alone.
                    self._scope.deadline = inf
                    if not self._ready.done():
                        self._ready.set_result(client)
                    await self._leave.wait()
        except Exception as e:  # noqa: BLE001 - whoever opened it is told; afterwards calls fail
            error = _first(e)
        finally:
            if not self._ready.done():
                self._ready.set_exception(self._unreachable(error))

    def _unreachable(self, error: Exception) -> GrpoPracticeError:
        if isinstance(error, ConfigError):
            return error
        closed = isinstance(error, MCPError) and error.code == CONNECTION_CLOSED
        said = "it ended at once" if closed else str(error) or type(error).__name__
        if self.notes.oversize:
            said = ""
        about = "; ".join(part for part in (said, self.notes.explanation) if part)
        return UnreachableError(
            f"the MCP server cannot be used: {about}",
            hint="does it run by itself, and does it speak this transport?",
        )

    async def close(self) -> None:
        """Close the connection; end the program that was started for it."""
        self._leave.set()
        if self._ready.done() and not self._ready.cancelled() and not self._ready.exception():
            self._scope.deadline = anyio.current_time() + _LEAVE_S
        else:
            self._ready.cancel()
            self._scope.cancel()
        try:
            # Not awaited itself: a cancellation must not reach the task
            # amid closing what it opened.
            await asyncio.wait({self._task})
        except asyncio.CancelledError:
            await asyncio.wait({self._task})  # cancelled once more it is left to end by itself
            raise

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Output:
        """Return what the tool answers.

        Raises:
            ToolError: The tool or the server says that it cannot.
            LostError: The server is not there any more.
            SlowError: It did not answer in time.
        """
        # Before the call: if all was over then, it was surely not begun and may be made again.
        over = self._task.done() or self.notes.ended
        try:
            async with asyncio.timeout(self._timeout_s + 1.0):  # over all rounds a call may take
                result = await self.client.call_tool(
                    name, dict(arguments), read_timeout_seconds=self._timeout_s
                )
        except TimeoutError as e:
            raise self._slow() from e
        except MCPError as e:
            raise self._failed(e, unheard=over) from e
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError) as e:
            raise LostError(f"the tool's server is gone: {type(e).__name__}", unheard=over) from e
        except Exception as e:  # the library has many for answers that do not fit
            self.answers += 1
            why = str(e).partition("\n")[0]
            raise ToolError(f"the tool's server answered what cannot be used: {why}") from e
        self.answers += 1
        await self._check(name, result)
        return output_of(result)

    async def _check(self, name: str, result: CallToolResult) -> None:
        """Raise ToolError unless a result fits the schema that the server lists for the tool."""
        schema = next((tool.output_schema for tool in self.tools if tool.name == name), None)
        if schema is None or result.is_error:
            return
        try:
            if "structured_content" not in result.model_fields_set:
                raise UnfitError("it has an output schema, and no structured content came")
            await self._checker.check(result.structured_content, schema)
        except UnfitError as e:
            raise ToolError(
                f"the tool's server answered what cannot be used: tool {name}: {e}"
            ) from e

    async def call_alone(self, name: str, arguments: Mapping[str, Any]) -> Output:
        """Call a tool where no other connection can stand in for this one.

        Raises:
            AgentError: The server is not there any more, nor what it knew.
        """
        try:
            return await self.call(name, arguments)
        except LostError as e:
            more = f" ({self.notes.explanation})" if self.notes.explanation else ""
            raise AgentError(
                f"toolkits.{self.name}: {e}{more}; with it went what this rollout had done there"
            ) from e

    def _slow(self) -> SlowError:
        return SlowError(f"no answer within {self._timeout_s:g} s")

    def _failed(self, error: MCPError, *, unheard: bool) -> ToolError:
        if error.code == REQUEST_TIMEOUT:
            return self._slow()
        forgotten = error.code == INVALID_REQUEST and self.notes.status == 404
        if error.code == CONNECTION_CLOSED or forgotten or error.message == _HTTP_FAILED:
            why = self.notes.explanation if self.notes.oversize else error.message
            text = f"the tool's server gave no answer: {why}"
            return LostError(text, unheard=unheard or forgotten)
        self.answers += 1
        return ToolError(error.message)


async def _leave_to_checker(name: str, result: CallToolResult) -> None:
    """Accept every result."""


def _first(error: Exception) -> Exception:
    """Return the first error out of the groups that the library's tasks wrap it in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
