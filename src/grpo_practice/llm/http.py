"""The only module that uses the HTTP libraries: a POST gives a response or a connection failure.

aiohttp is used because httpx's own pool loses slots when requests are cancelled and slows down
with many connections. httpx reads the environment (proxies, certificates) once for each URL; the
requests then go to aiohttp directly, since httpx's request and response objects cost more than the
rest of a call.
"""

import asyncio
import codecs
import json
import os
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import httpx
from aiohttp.http_exceptions import BadStatusLine
from httpx_aiohttp import AiohttpTransport, HttpxAiohttpClient
from httpx_sse import EventSource

from grpo_practice.canonical import clean
from grpo_practice.errors import ConfigError
from grpo_practice.llm.connections import FewInterim, QuietConnector
from grpo_practice.llm.endpoint import Endpoint, refuse_socks, shown_url
from grpo_practice.llm.http_response import (
    EVENTS,
    ConnectionFailure,
    Response,
    is_stream,
    plain,
    read_json,
)
from grpo_practice.llm.open_files import descriptors
from grpo_practice.llm.size_limit import LimitedChunks, OversizeError
from grpo_practice.llm.stream import assemble
from grpo_practice.redact import redactor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_END = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]\s*\Z")
_TAIL = 64
"""Bytes at the end of a stream that hold its last event."""
_CHUNK = 16 * 1024
ERROR_BYTES = 2**20
"""Bytes that are read of an error answer: its status says what to do, and its first words why."""
_LARGE = 2**20
"""Bytes from which a body is decoded in a thread: all other requests would wait meanwhile."""
KEPT_S = 5.0
"""Seconds for which an idle connection is kept."""

BREAKS = (httpx.HTTPError, aiohttp.ClientError, OSError, ValueError)
"""Errors of a broken connection; ValueError for a malformed answer or a bad proxy."""


@dataclass(frozen=True, slots=True)
class OpenResponse:
    """The head of an answer, and its body as it comes."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterable[bytes]

    @property
    def is_stream(self) -> bool:
        """True for server-sent events."""
        return is_stream(self.headers)


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
        self._most = endpoint.max_reply_bytes
        self._own_encodings = any(k.lower() == "accept-encoding" for k in endpoint.headers)
        self.url = str(chat_url(endpoint))
        self._where = redactor.text(shown_url(self.url))
        self._send = self._sender()
        self._connections = descriptors.take(connections if transport is None else 0)
        self.at_once = connections if transport is not None else self._connections
        """Requests that there is room for at once: fewer where the system lets no more be open."""
        self._room = asyncio.Semaphore(self.at_once)

    async def aclose(self) -> None:
        """Close all connections."""
        descriptors.give(self._connections)
        self._connections = 0
        await self._client.aclose()

    async def post(self, content: bytes) -> tuple[Response | ConnectionFailure, bool]:
        """Send it and read the answer to its end, secrets replaced; assemble a streamed one.

        Returns:
            Response or failure, and whether a 2xx began to arrive, which may have been billed.
        """
        begun, streamed, raw = False, False, bytearray()
        lost = ConnectionFailure("cut", "the stream broke off, or is no text", self._where)
        try:
            async with self._send(content) as response:
                begun = 200 <= response.status < 300
                streamed = begun and response.is_stream
                async for chunk in response.chunks:
                    raw += chunk
                    if not begun and len(raw) > ERROR_BYTES:
                        break
                    # Only in its tail: all of it, for each chunk, takes time
                    # with the square of its length.
                    if streamed and _END.search(raw, max(0, len(raw) - _TAIL)):
                        break  # some servers leave the connection open
        except BREAKS as e:
            lost = connection_failure(e, self._where)
            # An answer came that is not HTTP: behind it, one may have been written and billed.
            begun |= any(isinstance(cause, BadStatusLine) for cause in _causes(e))
            # A stream may have come to its end before the connection
            # broke: its body is tried first.
            if not streamed:
                return lost, begun
        read, whole = _read_stream if streamed else read_json, bytes(raw)
        del raw
        decoded = await asyncio.to_thread(read, whole) if len(whole) > _LARGE else read(whole)
        if decoded is None:
            return lost, begun
        text, body = decoded
        return Response(response.status, _lowered(response.headers), text, body, self._where), begun

    def opened(self, content: bytes) -> AbstractAsyncContextManager[OpenResponse]:
        """Send it; the body is neither read ahead nor redacted.

        Raises one of `BREAKS`, also while the body is read.
        """
        return self._send(content)

    def _sender(self) -> Callable[[bytes], AbstractAsyncContextManager[OpenResponse]]:
        """Return a function that posts a body, with the equal part of every request prepared."""
        bare, auth = httpx.URL(self.url), None
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
                refuse_socks(self.url, str(proxy.url))
            options = {
                "headers": dict(request.headers),
                # A redirect would take the key to another host.
                "allow_redirects": False,
                "timeout": self._patience,
                "proxy": str(proxy.url) if proxy else None,
                "proxy_auth": aiohttp.BasicAuth(*proxy.auth) if proxy and proxy.auth else None,
                "proxy_headers": proxy.headers if proxy else None,
            }
            return partial(self._over_network, transport, str(request.url), options)
        return partial(_through, transport, request, self._most)

    @asynccontextmanager
    async def _over_network(
        self, transport: AiohttpTransport, url: str, options: Mapping[str, Any], content: bytes
    ) -> AsyncIterator[OpenResponse]:
        """Post the content over the network."""
        if not isinstance(transport.client, aiohttp.ClientSession):
            # Not in __init__: a session belongs to the event loop that runs when it is made.
            # Its own, since the transport's reuses any connection.
            transport.client = aiohttp.ClientSession(
                connector=QuietConnector(transport.ssl_context, KEPT_S),
                response_class=FewInterim,
            )
        async with self._room, transport.client.post(url, data=content, **options) as response:
            # aiohttp unpacks as much as is read, and no more: a bomb stays packed behind the limit.
            body = response.content
            chunks = LimitedChunks(
                body.iter_chunked(_CHUNK), self._most, lambda: body.total_raw_bytes
            )
            yield OpenResponse(response.status, response.headers, chunks)


def certificates() -> ssl.SSLContext:
    """Return the trusted certificates of the environment, or raise the OSError of a file it names.

    They are read once: that blocks the event loop for a tenth of a second.
    """
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _certificates(*_: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context()


@asynccontextmanager
async def _through(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, most: int, content: bytes
) -> AsyncIterator[OpenResponse]:
    """Send the request with that content through a transport that was given."""
    whole = httpx.Request("POST", request.url, headers=request.headers, content=content)
    response = await transport.handle_async_request(whole)
    try:
        async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_bytes())) as chunks:
            limited = LimitedChunks(chunks, most)
            yield OpenResponse(response.status_code, response.headers, limited)
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


def chat_url(endpoint: Endpoint) -> httpx.URL:
    """Return the URL of chat completions, with the endpoint's query added to the URL's own."""
    url = httpx.URL(endpoint.base_url)
    url = url.copy_with(path=url.path.rstrip("/") + "/chat/completions")
    return url.copy_merge_params(dict(endpoint.query)) if endpoint.query else url


def _read_stream(raw: bytes) -> tuple[str, Any] | None:
    """Return the body in server-sent events as `read_json` does; None when it was cut."""
    body = streamed_body(raw)
    return None if body is None else (redactor.text(json.dumps(body)), redactor.value(body))


def streamed_body(raw: bytes, choice: int | None = None) -> Any:
    """Return the body in server-sent events; None when it was cut, or is no text.

    See `assemble` for `choice`.
    """
    try:
        response = httpx.Response(200, headers={"content-type": EVENTS}, content=_characters(raw))
        events = EventSource(response).iter_sse()
        named = ((event.event, event.data) for event in events if event.data.strip())
        return plain(assemble(named, choice))
    except (ValueError, RecursionError):
        return None


def _characters(raw: bytes) -> Iterator[bytes]:
    """Yield UTF-8, or raise ValueError, a little at a time, and the end of its last event."""
    decoder = codecs.getincrementaldecoder("utf-8")()  # it may be cut inside a character
    for at in range(0, len(raw), _CHUNK):
        yield decoder.decode(raw[at : at + _CHUNK]).encode()
    yield b"\n\n"  # the last event ends where the stream does


def connection_failure(error: Exception, where: str) -> ConnectionFailure:
    """Return what one of `BREAKS` says about the connection to `where`."""
    if isinstance(error, OversizeError):
        return ConnectionFailure("oversize", str(error), where)
    causes = _causes(error)
    text = redactor.text(f"{type(causes[-1]).__name__}: {error}")
    if any(isinstance(e, BadStatusLine) for e in causes):
        what = "it is not HTTP, or a body was longer than its Content-Length says"
        return ConnectionFailure("cut", f"the answer cannot be read: {what}: {text}", where)
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


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error and its causes: the libraries wrap the one that says what happened."""
    return [error, *(_causes(error.__cause__) if error.__cause__ is not None else ())]
