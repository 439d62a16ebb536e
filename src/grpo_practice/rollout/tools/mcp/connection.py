"""One connection to a server, opened and closed by its own task and callable from any task."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import anyio
from mcp import Client, MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcp.types import Tool as ServerTool

from grpo_practice.core.errors import AgentError, ConfigError, GrpoPracticeError
from grpo_practice.rollout.tools import Output, ToolError
from grpo_practice.rollout.tools.mcp.listing import every_tool
from grpo_practice.rollout.tools.mcp.result_check import ResultChecker, UnfitError
from grpo_practice.rollout.tools.mcp.transport import Notes, Reach

START_S = 60.0
"""Maximum seconds for a server to start and list its tools; a server that first installs itself is
slow.
"""
_LEAVE_S = 2.0
"""Maximum seconds to tell a server that the session has ended."""
_HTTP_FAILED = "Server returned an error response"
"""The library's message for an HTTP error status without further details."""


class UnreachableError(GrpoPracticeError):
    """The server could not be started, or does not speak the protocol."""


class LostError(ToolError):
    """The server did not answer and no longer can on this connection: it died or lost the session.

    `unheard` is True if the server certainly never began the call.
    """

    def __init__(self, message: str, *, unheard: bool) -> None:
        super().__init__(message)
        self.unheard = unheard


class SlowError(ToolError):
    """The server did not answer in time."""


class Connection:
    """A connection to a running server, created by `open`; tasks may call it concurrently."""

    def __init__(self, name: str, reach: Reach, timeout_s: float, checker: ResultChecker) -> None:
        self.name, self._timeout_s, self._checker = name, timeout_s, checker
        self.notes = Notes()
        self.tools: Sequence[ServerTool] = ()
        """Tools that the server listed when the connection was opened."""
        self.answers = 0
        """Number of calls answered, including those answered with an error."""
        self.users = 0
        """Number of calls in progress."""
        self._reach, self._leave = reach, asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + START_S)
        # One task per connection: everything that the library opens
        # must be closed by the same task.
        self._task = asyncio.create_task(self._live())

    @classmethod
    async def open(
        cls, name: str, reach: Reach, timeout_s: float, checker: ResultChecker
    ) -> "Connection":
        """Connect, and list the server's tools.

        Raises:
            UnreachableError: The connection failed.
            ConfigError: The server lacks a feature that the config requires.
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
        """The library's client session."""
        return self._ready.result()

    async def _live(self) -> None:
        error: Exception = TimeoutError(f"it was not ready within {START_S:g} s")
        try:
            with self._scope:
                async with self._reach(self.notes) as client:
                    # The library validates on the event loop, where neither a limit nor
                    # Ctrl-C could stop a slow pattern; `call` validates in a worker.
                    client.session.validate_tool_result = _leave_to_checker  # type: ignore[method-assign]
                    self.tools = await every_tool(client)
                    # The deadline covers only the start.
                    self._scope.deadline = inf
                    if not self._ready.done():
                        self._ready.set_result(client)
                    await self._leave.wait()
        except Exception as e:  # noqa: BLE001 - `open` raises it; later, calls fail
            error = _first(e)
        finally:
            if not self._ready.done():
                self._ready.set_exception(self._unreachable(error))

    def _unreachable(self, error: Exception) -> GrpoPracticeError:
        if isinstance(error, ConfigError):
            return error
        closed = isinstance(error, MCPError) and error.code == CONNECTION_CLOSED
        said = "it ended immediately" if closed else str(error) or type(error).__name__
        if self.notes.oversize:
            said = ""
        about = "; ".join(part for part in (said, self.notes.explanation) if part)
        return UnreachableError(
            f"the MCP server cannot be used: {about}",
            hint="check that it runs on its own and supports this transport",
        )

    async def close(self) -> None:
        """Close the connection and end the program that was started for it."""
        self._leave.set()
        if self._ready.done() and not self._ready.cancelled() and not self._ready.exception():
            self._scope.deadline = anyio.current_time() + _LEAVE_S
        else:
            self._ready.cancel()
            self._scope.cancel()
        try:
            # Do not await the task directly: a cancellation must not reach it
            # while it closes its resources.
            await asyncio.wait({self._task})
        except asyncio.CancelledError:
            await asyncio.wait({self._task})  # after a second cancellation it ends by itself
            raise

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Output:
        """Return the result of a tool.

        Raises:
            ToolError: The tool or the server reports an error.
            LostError: The server has died or lost the session.
            SlowError: The server did not answer in time.
        """
        # Check before the call: if the server ended earlier, the call may be repeated.
        over = self._task.done() or self.notes.ended
        try:
            async with asyncio.timeout(self._timeout_s + 1.0):  # covers all rounds of a call
                result = await self.client.call_tool(
                    name, dict(arguments), read_timeout_seconds=self._timeout_s
                )
        except TimeoutError as e:
            raise self._slow() from e
        except MCPError as e:
            raise self._failed(e, unheard=over) from e
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError) as e:
            raise LostError(f"the tool's server is gone: {type(e).__name__}", unheard=over) from e
        except Exception as e:  # the library raises many types for invalid answers
            self.answers += 1
            why = str(e).partition("\n")[0]
            raise ToolError(f"the tool's server gave an unusable answer: {why}") from e
        self.answers += 1
        await self._check(name, result)
        return output_of(result)

    async def _check(self, name: str, result: CallToolResult) -> None:
        """Raise ToolError unless the result fits the output schema that the server lists."""
        schema = next((tool.output_schema for tool in self.tools if tool.name == name), None)
        if schema is None or result.is_error:
            return
        try:
            if "structured_content" not in result.model_fields_set:
                raise UnfitError("it has an output schema, but returned no structured content")
            await self._checker.check(result.structured_content, schema)
        except UnfitError as e:
            raise ToolError(f"the tool's server gave an unusable answer: tool {name}: {e}") from e

    async def call_alone(self, name: str, arguments: Mapping[str, Any]) -> Output:
        """Call a tool of a stateful server, which no other connection can replace.

        Raises:
            AgentError: The server has died or lost the session, and with it the rollout's state.
        """
        try:
            return await self.call(name, arguments)
        except LostError as e:
            more = f" ({self.notes.explanation})" if self.notes.explanation else ""
            raise AgentError(
                f"toolkits.{self.name}: {e}{more}; this rollout's state there is lost with it"
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
    """Accept every result, because a worker checks it later."""


def _first(error: Exception) -> Exception:
    """Return the first error inside the exception groups of the library's tasks."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def output_of(result: CallToolResult) -> Output:
    """Return a result as the model reads it: text, with placeholders for other content.

    Structured content is shown if there is no text; raise ToolError if the tool failed.
    """
    has_text = any(isinstance(block, TextContent) for block in result.content)
    parts = [_text(block) for block in result.content]
    if not has_text and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = "\n".join(parts)
    if result.is_error:
        raise ToolError(text or "the tool failed and did not say why")
    return Output(text or "[no content]")


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type}, {block.mime_type}, {_size(block.data)}]"
        case ResourceLink():
            return f"[link to {block.name}: {block.uri}]"
        case EmbeddedResource():
            inside = block.resource
            if isinstance(inside, BlobResourceContents):
                kind = inside.mime_type or "binary"
                return f"[resource {inside.uri}, {kind}, {_size(inside.blob)}]"
            return inside.text


def _size(base64: str) -> str:
    size = len(base64) * 3 // 4
    return f"{size / 1000:.0f} KB" if size >= 1000 else f"{size} bytes"
