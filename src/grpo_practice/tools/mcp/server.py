"""A server that all rollouts share: where its connection is lost, the next call makes another."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from grpo_practice.errors import EndpointRefusedError
from grpo_practice.tools import Output
from grpo_practice.tools.mcp.connection import Connection, LostError, SlowError, UnreachableError

WAITS_S = (0.0, 1.0, 4.0)
"""Before each try to reach it again."""
IN_A_ROW = 5
"""Connections that answered no call at all: then nothing good comes of another."""


class Server:
    """Calls are made through one connection, all at once.

    A connection that was lost, or on which a call was not answered in time, is used for no new
    call, and closed once those under way have ended.
    """

    def __init__(self, first: Connection, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect, self._now = connect, first
        self._good = True
        """Whether new calls go to the connection there is."""
        self._closing = set[asyncio.Task[None]]()
        self._lock = asyncio.Lock()
        self._silent = 0
        """Connections in a row that answered nothing."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Output:
        """Return what the tool answers. A call that was surely not begun is made once more.

        Raises:
            ToolError: It cannot, or the server died over it.
            EndpointRefusedError: The server cannot be reached any more.
        """
        try:
            return await self._once(name, arguments)
        except LostError as e:
            # A call that may have begun is not made twice: it may have changed something.
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
        # Calls under way fail together, and count once.
        if connection is not self._now or not self._good:
            return
        self._good = False
        self._silent = 0 if connection.answers else self._silent + 1
        if self._silent >= IN_A_ROW:
            raise self._refused(f"{self._silent} times in a row it answered nothing: {why}")

    def _refused(self, why: str) -> EndpointRefusedError:
        name, notes = self._now.name, self._now.notes
        about = f"{why}; {notes.explanation}" if notes.explanation else why
        return EndpointRefusedError(
            f"toolkits.{name}: the MCP server is of no use any more: {about}",
            hint="mend the server, or give it more mcp_client_session_timeout_seconds, and run the"
            " command again: it goes on where it stopped",
        )

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        """Yield the connection for one call; one that is retired is closed after its last."""
        async with self._lock:
            if not self._good:
                await self._anew()
            connection = self._now
            # Within the lock, or `_spare` could close it before it is used.
            connection.users += 1
        try:
            yield connection
        finally:
            connection.users -= 1
            self._spare(connection)

    def _spare(self, connection: Connection) -> None:
        """Close what no call uses, nor will."""
        if connection is not self._now and not connection.users:
            # Not awaited: the call that was the last one has its answer.
            task = asyncio.create_task(connection.close())
            # Kept, since the loop refers to its tasks weakly.
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _anew(self) -> None:
        """Make sure that there is a connection for new calls, or raise EndpointRefusedError."""
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
