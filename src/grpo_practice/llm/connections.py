"""aiohttp connections, hardened against the behaviour of odd or hostile servers."""

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from aiohttp.connector import Connection
from typing_extensions import override

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.tracing import Trace

MOST_INTERIM = 32
"""Maximum number of informational responses (100 Continue, 103 Early Hints) skipped per request."""

REST_S = 0.25
"""Seconds between the end of a response and the next request on its connection."""
MOST_RESTING = 32
"""Maximum number of resting TLS connections, each of which is an open file; beyond it, the oldest
is used.
"""


class FewInterim(aiohttp.ClientResponse):
    """Limits informational (1xx) responses, of which aiohttp itself skips any number."""

    @override
    async def start(self, connection: Connection) -> Self:
        """Read the status line and headers of the response.

        Raises:
            ClientPayloadError: More than `MOST_INTERIM` informational responses preceded it.
        """
        protocol = connection.protocol
        assert protocol is not None, "the connection is open"
        read, heads = protocol.read, itertools.count()

        async def counted() -> Any:
            if next(heads) > MOST_INTERIM:
                raise aiohttp.ClientPayloadError(
                    f"more than {MOST_INTERIM} informational responses"
                )
            return await read()

        # Wrap the connection's reader for this request, because aiohttp does not count them.
        protocol.read = counted  # type: ignore[method-assign]
        try:
            await super().start(connection)
        finally:
            del protocol.read
        return self


class QuietConnector(aiohttp.TCPConnector):
    """A pool that reuses a connection only if nothing has arrived on it since its last use.

    Once a server has sent an unrequested reply, no connection is used twice. Without TLS, the
    number of connections never exceeds that of concurrent requests, since a server may have a
    thread for each.
    """

    def __init__(self, ssl: "SSLContext", kept_s: float) -> None:
        # No limit here: waiting for a connection would count as time to connect.
        super().__init__(ssl=ssl, limit=0, keepalive_timeout=kept_s)
        self._resting = dict["ResponseHandler", tuple["ConnectionKey", asyncio.TimerHandle]]()

    @override
    def _release(
        self, key: "ConnectionKey", protocol: "ResponseHandler", *, should_close: bool = False
    ) -> None:
        if should_close or protocol.should_close or self._force_close:
            super()._release(key, protocol, should_close=True)
            return
        # A second reply that arrives after the next request cannot be told from that request's
        # reply, so the connection rests first. Use a timer: everything that arrived before it
        # fires has been read.
        self._resting[protocol] = key, self._loop.call_later(REST_S, self._rested, protocol)
        if len(self._resting) > MOST_RESTING:
            self._rested(next(iter(self._resting)))

    def _rested(self, protocol: "ResponseHandler", *, should_close: bool = False) -> None:
        key, timer = self._resting.pop(protocol)
        timer.cancel()
        # Stop all reuse: next time, the second reply may arrive later.
        self._force_close |= bool(protocol._buffer)
        super()._release(key, protocol, should_close=should_close)

    @override
    async def _get(self, key: "ConnectionKey", traces: "list[Trace]") -> Connection | None:
        # Data that arrived in the meantime would be taken for the next request's response.
        while connection := await super()._get(key, traces):
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                break
            self._force_close |= protocol is not None and bool(protocol._buffer)
            connection.close()
        if connection is None and not key.is_ssl:
            # A new connection costs less than an additional one at a server with few threads.
            oldest = next((p for p, (of, _) in self._resting.items() if of == key), None)
            if oldest is not None:
                self._rested(oldest, should_close=True)
        return connection
