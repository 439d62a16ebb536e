"""A server shared by all rollouts; if its connection is lost, the next call opens another one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from grpo_practice.core.errors import EndpointRefusedError
from grpo_practice.rollout.tools import Output
from grpo_practice.rollout.tools.mcp.connection import (
    Connection,
    LostError,
    SlowError,
    UnreachableError,
)

WAITS_S = (0.0, 1.0, 4.0)
"""Seconds to wait before each attempt to reconnect."""
IN_A_ROW = 5
"""Number of consecutive connections without any answered call after which no more are opened."""


class Server:
    """A server whose concurrent calls share one connection.

    A connection that was lost, or on which a call timed out, receives no new calls and is closed
    once its last call has ended.
    """

    def __init__(self, first: Connection, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect, self._now = connect, first
        self._good = True
        """Whether the current connection accepts new calls."""
        self._closing = set[asyncio.Task[None]]()
        self._lock = asyncio.Lock()
        self._silent = 0
        """Number of consecutive connections that answered no call."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Output:
        """Return the result of a tool; retry once if the call certainly never began.

        Raises:
            ToolError: The tool failed, or the server died during the call.
            EndpointRefusedError: The server can no longer be reached.
        """
        try:
            return await self._once(name, arguments)
        except LostError as e:
            # A call that may have begun is not repeated: it may have had an effect.
            if not e.unheard:
                raise
        return await self._once(name, arguments)

    async def _once(self, name: str, arguments: Mapping[str, Any]) -> Output:
        async with self._connected() as connection:
            try:
                return await connection.call(name, arguments)
            except (LostError, SlowError) as e:
                self._retire(connection, e)
                raise

    def _retire(self, connection: Connection, why: Exception) -> None:
        # Calls in progress fail together but count once.
        if connection is not self._now or not self._good:
            return
        self._good = False
        self._silent = 0 if connection.answers else self._silent + 1
        if self._silent >= IN_A_ROW:
            raise self._refused(f"it gave no answer {self._silent} times in a row: {why}")

    def _refused(self, why: str) -> EndpointRefusedError:
        name, notes = self._now.name, self._now.notes
        about = f"{why}; {notes.explanation}" if notes.explanation else why
        return EndpointRefusedError(
            f"toolkits.{name}: the MCP server is no longer usable: {about}",
            hint="fix the server or raise mcp_client_session_timeout_seconds, then run the"
            " command again: it resumes where it stopped",
        )

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        """Yield the connection for one call; a retired one is closed after its last call."""
        async with self._lock:
            if not self._good:
                await self._anew()
            connection = self._now
            # Inside the lock; otherwise `_spare` could close the connection before it is used.
            connection.users += 1
        try:
            yield connection
        finally:
            connection.users -= 1
            self._spare(connection)

    def _spare(self, connection: Connection) -> None:
        """Close a connection that is no longer current, once no call uses it."""
        if connection is not self._now and not connection.users:
            # Not awaited: the last call already has its answer and need not wait.
            task = asyncio.create_task(connection.close())
            # Kept because the event loop holds only weak references to tasks.
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _anew(self) -> None:
        """Ensure that new calls have a connection, or raise EndpointRefusedError."""
        for wait_s in WAITS_S:
            await asyncio.sleep(wait_s)
            try:
                found = await self._connect()
            except UnreachableError as e:
                error = e
                continue
            old, self._now, self._good = self._now, found, True
            self._spare(old)
            return
        raise self._refused(str(error)) from error

    async def close(self) -> None:
        """Close every connection."""
        self._good = False
        await self._now.close()
        if self._closing:
            await asyncio.wait(self._closing)
