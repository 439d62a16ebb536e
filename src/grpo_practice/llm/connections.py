"""aiohttp's connections, without what an odd or hostile server may do with them."""

import itertools
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from aiohttp.connector import Connection
from typing_extensions import override

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.tracing import Trace

MOST_INTERIM = 32
"""Interim answers (100 Continue, 103 Early Hints) to one request that are read over."""

REST_S = 0.05
"""Seconds between the end of an answer and the next request on its connection."""
MOST_RESTING = 64
"""Connections that rest at once, since each is an open file; others are used without a rest."""


class FewInterim(aiohttp.ClientResponse):
    """aiohttp's response, which reads over interim answers without end."""

    @override
    async def start(self, connection: Connection) -> Self:
        """Read the head of the answer.

        Raises:
            ClientPayloadError: More than `MOST_INTERIM` interim answers came before it.
        """
        protocol = connection.protocol
        assert protocol is not None, "the connection is open"
        read, heads = protocol.read, itertools.count()

        async def counted() -> Any:
            if next(heads) > MOST_INTERIM:
                raise aiohttp.ClientPayloadError(f"more than {MOST_INTERIM} interim answers")
            return await read()

        # On the connection's reader, for this request: aiohttp counts them nowhere.
        protocol.read = counted  # type: ignore[method-assign]
        try:
            await super().start(connection)
        finally:
            del protocol.read
        return self


class QuietConnector(aiohttp.TCPConnector):
    """A pool of connections on which nothing has come since they were last used."""

    _resting = 0

    @override
    def _release(
        self, key: "ConnectionKey", protocol: "ResponseHandler", *, should_close: bool = False
    ) -> None:
        # A second reply that comes once the next request was sent cannot be told from its own,
        # so the connection is not used at once. A timer, not a time: what came before it runs
        # out has then been read.
        if should_close or protocol.should_close or self._resting >= MOST_RESTING:
            super()._release(key, protocol, should_close=should_close)
            return
        self._resting += 1
        self._loop.call_later(REST_S, self._rested, key, protocol)

    def _rested(self, key: "ConnectionKey", protocol: "ResponseHandler") -> None:
        self._resting -= 1
        super()._release(key, protocol)

    @override
    async def _get(self, key: "ConnectionKey", traces: "list[Trace]") -> Connection | None:
        # Whatever came meanwhile would be taken for the answer to the next request.
        while connection := await super()._get(key, traces):
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                break
            connection.close()
        return connection
