"""The only module that uses the HTTP libraries: a POST gives a response or a connection failure.

aiohttp is used because httpx's own pool loses slots when requests are cancelled and slows down
with many connections. httpx reads the environment (proxies, certificates) once for each URL; the
requests then go to aiohttp directly, since httpx's request and response objects cost more than the
rest of a call.
"""

import asyncio
import codecs
import itertools
import json
import os
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Self, cast

import aiohttp
import httpx
from aiohttp.connector import Connection
from httpx_aiohttp import AiohttpTransport, HttpxAiohttpClient
from httpx_sse import EventSource
from typing_extensions import override

from grpo_practice.canonical import clean
from grpo_practice.errors import ConfigError
from grpo_practice.llm.endpoint import Endpoint, refuse_socks, shown_url
from grpo_practice.llm.http_response import ConnectionFailure, Response, plain, read_json
from grpo_practice.llm.open_files import descriptors
from grpo_practice.llm.stream import assemble
from grpo_practice.redact import redactor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_EVENTS = "text/event-stream"
_END = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]\s*\Z")
_TAIL = 64
"""Bytes at the end of a stream that hold its last event."""
_CHUNK = 16 * 1024
KEPT_S = 5.0
"""Seconds for which an idle connection is kept."""
MOST_INTERIM = 32
"""Interim answers (100 Continue, 103 Early Hints) to one request that are read over."""

BREAKS = (httpx.HTTPError, aiohttp.ClientError, OSError, ValueError)
"""Errors of a broken connection; ValueError for a malformed answer or a bad proxy."""


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


@dataclass(frozen=True, slots=True)
class OpenResponse:
    """The head of an answer, and its body as it comes."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterable[bytes]

    @property
    def is_stream(self) -> bool:
        """True for server-sent events."""
        return self.headers.get("content-type", "").lower().startswith(_EVENTS)


@dataclass(frozen=True, slots=True)
class _Line:
    """The equal part of every request to one URL."""

    where: str
    """URL as it is shown."""
    send: Callable[[bytes], AbstractAsyncContextManager[OpenResponse]]
    """Function that posts a body."""


class Http:
    """The connections to one endpoint, with room for that many requests at once, or for `at_once`.

    Proxies and certificates come from the environment, unless a `transport` is given.

    Raises:
        ConfigError: A proxy variable or the certificate file cannot be used, or the system does
            not let a process have one more connection.
    """

    def __init__(
        self, endpoint: Endpoint, connections: int, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        try:
            self._client = HttpxAiohttpClient(
                headers=endpoint.request_headers(),
                verify=certificates() if transport is None else True,
                transport=transport,
            )
        except (OSError, ValueError, httpx.InvalidURL) as e:
            raise ConfigError(
                f"the environment's network settings cannot be used: {type(e).__name__}: {e}",
                hint="check SSL_CERT_FILE, SSL_CERT_DIR, HTTP_PROXY, HTTPS_PROXY and ALL_PROXY",
            ) from e
        # No read timeout: the caller's deadline is over the whole request. Not `sock_connect`,
        # which leaves out looking up the name; who waits for a free connection waits for `_room`.
        self._patience = aiohttp.ClientTimeout(connect=endpoint.connect_timeout_s)
        self._own_encodings = any(k.lower() == "accept-encoding" for k in endpoint.headers)
        self._lines = dict[str, _Line]()
        for base in endpoint.base_urls:  # a proxy that is refused is so before anything is sent
            self._line(str(chat_url(base, endpoint)))
        self._connections = descriptors.take(connections if transport is None else 0)
        self.at_once = connections if transport is not None else self._connections
        """Requests that there is room for at once: fewer where the system lets no more be open."""
        self._room = asyncio.Semaphore(self.at_once)

    async def aclose(self) -> None:
        """Close all connections."""
        descriptors.give(self._connections)
        self._connections = 0
        await self._client.aclose()

    async def post(self, url: str, content: bytes) -> tuple[Response | ConnectionFailure, bool]:
        """Send it and read the answer to its end, secrets replaced; assemble a streamed one.

        Returns:
            Response or failure, and whether a 2xx began to arrive, which may have been billed.
        """
        line = self._line(url)
        begun, streamed, raw = False, False, bytearray()
        lost = ConnectionFailure("cut", "the stream broke off, or is no text", line.where)
        try:
            async with line.send(content) as response:
                begun = 200 <= response.status < 300
                streamed = begun and response.is_stream
                async for chunk in response.chunks:
                    raw += chunk
                    # Only in its tail: all of it, for each chunk, takes time
                    # with the square of its length.
                    if streamed and _END.search(raw, max(0, len(raw) - _TAIL)):
                        break  # some servers leave the connection open
        except BREAKS as e:
            lost = connection_failure(e, line.where)
            # A stream may have come to its end before the connection
            # broke: its body is tried first.
            if not streamed:
                return lost, begun
        body: Any
        if streamed:
            body = streamed_body(bytes(raw))
            if body is None:
                return lost, begun
            text, body = redactor.text(json.dumps(body)), redactor.value(body)
        else:
            text, body = read_json(bytes(raw))
        return Response(response.status, _lowered(response.headers), text, body, line.where), begun

    def opened(self, url: str, content: bytes) -> AbstractAsyncContextManager[OpenResponse]:
        """Send it; the body is neither read ahead nor redacted.

        Raises one of `BREAKS`, also while the body is read.
        """
        return self._line(url).send(content)

    def _line(self, url: str) -> _Line:
        if url in self._lines:
            return self._lines[url]
        bare, auth = httpx.URL(url), None
        if bare.userinfo:  # aiohttp takes a login in the URL or in a header, not both
            auth = httpx.BasicAuth(bare.username, bare.password)
            bare = bare.copy_with(userinfo=b"")
        request = self._client.build_request("POST", bare)
        if auth is not None:
            request = next(auth.auth_flow(request))
        del request.headers["content-length"]  # of this empty one
        # httpx decides the proxy for a URL here, and has no public name for it.
        transport = self._client._transport_for_url(bare)
        if isinstance(transport, AiohttpTransport):
            if not self._own_encodings:
                del request.headers["accept-encoding"]  # aiohttp names those it can read
            proxy = transport.proxy
            if proxy is not None:
                refuse_socks(url, str(proxy.url))
            options = {
                "headers": dict(request.headers),
                # A redirect would take the key to another host.
                "allow_redirects": False,
                "timeout": self._patience,
                "proxy": str(proxy.url) if proxy else None,
                "proxy_auth": aiohttp.BasicAuth(*proxy.auth) if proxy and proxy.auth else None,
                "proxy_headers": proxy.headers if proxy else None,
            }
            send = partial(self._over_network, transport, str(request.url), options)
        else:
            send = partial(_through, transport, request)
        return self._lines.setdefault(url, _Line(redactor.text(shown_url(url)), send))

    @asynccontextmanager
    async def _over_network(
        self, transport: AiohttpTransport, url: str, options: Mapping[str, Any], content: bytes
    ) -> AsyncIterator[OpenResponse]:
        """Post the content over the network."""
        if not isinstance(transport.client, aiohttp.ClientSession):
            # Not in __init__: a session belongs to the event loop that runs when it is made.
            transport.client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    # No limit here: a wait for it would count as time to connect.
                    ssl=transport.ssl_context,
                    limit=0,
                    keepalive_timeout=KEPT_S,
                ),
                response_class=FewInterim,
            )
        async with self._room, transport.client.post(url, data=content, **options) as response:
            yield OpenResponse(
                response.status, response.headers, response.content.iter_chunked(_CHUNK)
            )


def certificates() -> ssl.SSLContext:
    """Return the trusted certificates of the environment.

    They are read once: that blocks the event loop for a tenth of a second.

    Raises:
        OSError: A file it names cannot be read.
    """
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _certificates(*_: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context()


@asynccontextmanager
async def _through(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, content: bytes
) -> AsyncIterator[OpenResponse]:
    """Send the request with that content through a transport that was given."""
    whole = httpx.Request("POST", request.url, headers=request.headers, content=content)
    response = await transport.handle_async_request(whole)
    try:
        async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_bytes())) as chunks:
            yield OpenResponse(response.status_code, response.headers, chunks)
    finally:
        await response.aclose()


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers by their names in lower case, secrets replaced."""
    lowered = dict[str, str]()
    for name, value in headers.items():
        key = name.lower()
        lowered[key] = f"{lowered[key]}, {value}" if key in lowered else value
    whole = "\n".join((*lowered, *lowered.values()))
    if whole.isascii() and not redactor.suspects(whole):
        return lowered
    return {clean(k): redactor.text(clean(v)) for k, v in lowered.items()}


def chat_url(base_url: str, endpoint: Endpoint) -> httpx.URL:
    """Return the URL of chat completions, with the endpoint's query added to the URL's own."""
    url = httpx.URL(base_url)
    url = url.copy_with(path=url.path.rstrip("/") + "/chat/completions")
    return url.copy_merge_params(dict(endpoint.query)) if endpoint.query else url


def streamed_body(raw: bytes, choice: int | None = None) -> Any:
    """Return the body in server-sent events; None when it was cut, or is no text.

    See `assemble` for `choice`.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(raw)  # may be cut inside a character
        whole = f"{text}\n\n".encode()  # the last event ends where the stream does
        response = httpx.Response(200, headers={"content-type": _EVENTS}, content=whole)
        events = EventSource(response).iter_sse()
        named = ((event.event, event.data) for event in events if event.data.strip())
        return plain(assemble(named, choice))
    except (ValueError, RecursionError):
        return None


def connection_failure(error: Exception, where: str) -> ConnectionFailure:
    """Return what one of `BREAKS` says about the connection to `where`."""
    causes = list[BaseException]()
    cause: BaseException | None = error
    # The libraries wrap errors in their own; the kind of failure stands in a cause.
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    text = redactor.text(f"{type(causes[-1]).__name__}: {error}")
    cut = (ssl.SSLEOFError, ssl.SSLZeroReturnError)  # during the handshake, as anywhere else
    # First: aiohttp's error for a failed handshake is a connector error
    # as well, and those are tried again.
    if any(isinstance(e, ssl.SSLError) and not isinstance(e, cut) for e in causes):
        return ConnectionFailure("tls", text, where)
    proxy = (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError, httpx.ProxyError)
    if any(isinstance(e, proxy) for e in causes):
        return ConnectionFailure("proxy", text, where)
    connect = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, httpx.ConnectError)
    if any(isinstance(e, connect) for e in causes):
        return ConnectionFailure("connect", text, where)
    return ConnectionFailure("cut", text, where)
