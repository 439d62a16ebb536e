"""Closes connections whose request stays incomplete for too long; in a crowd, the limit is shorter.

aiohttp waits indefinitely for the rest of a request, and each connection uses an open file.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web
from typing_extensions import override

RECEIVE_S = 300.0
"""Seconds within which a request must arrive completely; a slow client may use all of them."""
CROWD = 256
"""Number of unfinished requests above which the oldest have only `CROWDED_S` to finish."""
CROWDED_S = 10.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
IDLE_S = 300.0
"""Seconds for which a connection is kept open after a response."""
_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Unfinished:
    """The connections of a server that have not yet sent a complete request, oldest first."""

    def __init__(self) -> None:
        self._since = dict[Connection, float]()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: "Connection") -> None:
        """Start the connection's time limit, unless it has already started."""
        if connection not in self._since:
            self._since[connection] = asyncio.get_running_loop().time()
            # An earlier check is needed only for the first connection, which may have no timer
            # yet, and when a crowd begins, which shortens the limit of the oldest.
            if len(self) in (1, CROWD + 1):
                self._close_overdue()

    def discard(self, connection: "Connection") -> None:
        """Forget the connection: its request is complete, or it is closed."""
        self._since.pop(connection, None)

    def stop(self) -> None:
        """Stop closing connections."""
        if self._timer is not None:
            self._timer.cancel()

    def _close_overdue(self) -> None:
        """Close overdue connections, and schedule the next check."""
        self.stop()
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._since:
            # A dict keeps the order of insertion, and all limits are equal: the oldest is due
            # first.
            oldest, since = next(iter(self._since.items()))
            due = since + (RECEIVE_S if len(self) <= CROWD else CROWDED_S)
            if due > loop.time():
                self._timer = loop.call_at(due, self._close_overdue)
                return
            self.discard(oldest)
            oldest.close()


class Connection(asyncio.Protocol):
    """A client's connection, observed from outside: aiohttp does not report incoming bytes."""

    def __init__(self, http: asyncio.Protocol, unfinished: Unfinished) -> None:
        self._http, self._unfinished = http, unfinished
        self._transport: asyncio.Transport | None = None
        self._answering = False

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Suspend the time limit while the block runs: the request has arrived completely."""
        self._unfinished.discard(self)
        self._answering = True
        try:
            yield
        finally:
            self._answering = False

    def close(self) -> None:
        """Tell the client that its time is over, and close the connection."""
        assert self._transport is not None, "lost connections are forgotten"
        self._transport.write(_TIMEOUT)
        self._transport.close()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._unfinished.add(self)
        self._http.connection_made(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._unfinished.discard(self)
        self._http.connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        # Data that arrives before the response is not a new request: aiohttp buffers it while
        # idle.
        if not self._answering:
            self._unfinished.add(self)
        self._http.data_received(data)

    @override
    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    @override
    def pause_writing(self) -> None:
        self._http.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._http.resume_writing()


@web.middleware
async def whole_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Read the whole body within the connection's time limit, then call the handler."""
    await request.read()
    connection = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(connection, Connection):
        raise ConnectionResetError("the client is gone")
    with connection.answering():
        return await handler(request)
