"""The only module that uses the HTTP libraries: posts and returns a response or a failure.

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

from grpo_practice.core.calls import ApiName
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import clean, clean_json
from grpo_practice.core.redact import redactor
from grpo_practice.llm.api import APIS, assemble, completion
from grpo_practice.llm.connections import FewInterim, QuietConnector
from grpo_practice.llm.endpoint import Endpoint, refuse_socks, shown_url
from grpo_practice.llm.http_response import (
    EVENTS,
    ConnectionFailure,
    OtherApiError,
    Response,
    is_stream,
    plain,
    read_json,
)
from grpo_practice.llm.open_files import descriptors
from grpo_practice.llm.size_limit import LimitedChunks, OversizeError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_END = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]\s*\Z")
_TAIL = 64
"""Number of bytes at the end of a stream that contain its last event."""
_CHUNK = 16 * 1024
ERROR_BYTES = 2**20
"""Number of bytes read from an error response: the status decides how to proceed, and the
beginning of the body gives the reason.
"""
_LARGE = 2**20
"""Size in bytes above which a body is decoded in a thread, so that other requests need not wait."""
KEPT_S = 5.0
"""Number of seconds for which an idle connection is kept open."""

BREAKS = (httpx.HTTPError, aiohttp.ClientError, OSError, ValueError)
"""Errors of a broken connection; ValueError for a malformed response or an invalid proxy."""
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True)
class OpenResponse:
    """Status and headers of a response, and its body in chunks as they arrive."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterable[bytes]

    @property
    def is_stream(self) -> bool:
        """True for server-sent events."""
        return is_stream(self.headers)


class Http:
    """The connections to one endpoint, for up to `connections` concurrent requests, or `at_once`.

    Proxies and certificates are taken from the environment, unless a `transport` is given.

    Raises:
        ConfigError: A proxy variable or the certificate file is invalid, or the system does not
            permit the process another connection.
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
        # No read timeout, since the caller's deadline covers the whole request. `connect`
        # instead of `sock_connect`, which excludes the name lookup. It does not count waiting
        # for a free connection, which happens at `_room`.
        self._patience = aiohttp.ClientTimeout(connect=endpoint.connect_timeout_s)
        self._most = endpoint.max_reply_bytes
        self._own_encodings = any(k.lower() == "accept-encoding" for k in endpoint.headers)
        self._endpoint = endpoint
        self.url = str(request_url(endpoint))
        self._where = redactor.text(shown_url(self.url))
        self._send = self._sender()
        self._connections = descriptors.take(connections if transport is None else 0)
        self.at_once = connections if transport is not None else self._connections
        """Maximum number of concurrent requests; fewer than requested if the system limits open
        files.
        """
        self._room = asyncio.Semaphore(self.at_once)

    async def aclose(self) -> None:
        """Close all connections."""
        descriptors.give(self._connections)
        self._connections = 0
        await self._client.aclose()

    async def post(
        self, content: bytes, arrived: Callable[[bytearray], None] = lambda _: None
    ) -> tuple[Response | ConnectionFailure, bool]:
        """Post the content and return the complete response, redacted; join the events of a stream.

        `arrived` gets the body so far whenever a part of it has come.

        Returns:
            Response or failure, and whether a 2xx began to arrive, which may have been billed.
        """
        begun, streamed, raw = False, False, bytearray()
        lost = ConnectionFailure("cut", "the stream broke off or is not valid text", self._where)
        try:
            async with self._send(content) as response:
                begun = 200 <= response.status < 300
                streamed = begun and response.is_stream
                async for chunk in response.chunks:
                    raw += chunk
                    if not begun and len(raw) > ERROR_BYTES:
                        break
                    arrived(raw)
                    # Search only the tail: searching everything for each chunk would take
                    # quadratic time.
                    if streamed and _END.search(raw, max(0, len(raw) - _TAIL)):
                        break  # some servers leave the connection open
        except BREAKS as e:
            lost = connection_failure(e, self._where)
            # The response is not HTTP, but the server may have generated and billed a reply.
            begun |= any(isinstance(cause, BadStatusLine) for cause in _causes(e))
            # A stream may have been complete before the connection broke, so its body is tried
            # first.
            if not streamed:
                return lost, begun
        api = self._endpoint.api
        read, whole = partial(_read_stream, api) if streamed else read_json, bytes(raw)
        del raw
        other = None
        try:
            decoded = await asyncio.to_thread(read, whole) if len(whole) > _LARGE else read(whole)
            if decoded is None:
                return lost, begun
            text, body = decoded
            if begun:
                body = completion(api, body)
        except OtherApiError as e:
            text, body, other = "", None, str(e)
        except ValueError as e:
            # The reply is well-formed, and useless: the same request may well get a better one.
            body = {"error": {"message": str(e)}}
        headers = _lowered(response.headers)
        return Response(response.status, headers, text, body, self._where, other), begun

    async def request(
        self,
        method: str,
        path: str,
        content: bytes = b"",
        *,
        kind: str | None = None,
        query: Mapping[str, str] | None = None,
        most: int = ERROR_BYTES,
    ) -> tuple[int, Mapping[str, str], bytes] | ConnectionFailure:
        """Send a request to another path of the endpoint; return status, headers and whole body.

        The body is not redacted.

        Args:
            method: HTTP method.
            path: Path below the base URL.
            content: Body of the request.
            kind: Content type of that body; None means JSON.
            query: Query of the URL, in addition to the endpoint's own.
            most: Maximum number of bytes in the response.
        """
        url = request_url(self._endpoint, path).copy_merge_params(dict(query or {}))
        headers = {} if kind is None else {"content-type": kind}
        try:
            request = self._built(method, url, content=content, headers=headers)
            request.extensions["timeout"] = httpx.Timeout(
                self._endpoint.timeout_s, connect=self._endpoint.connect_timeout_s
            ).as_dict()
            async with aclosing(await self._client.send(request, stream=True)) as response:
                unpacked = response.aiter_bytes(_CHUNK)
                chunks = LimitedChunks(
                    unpacked, most, lambda: response.num_bytes_downloaded, key=None
                )
                raw = b"".join([chunk async for chunk in chunks])
        except BREAKS as e:
            return connection_failure(e, redactor.text(shown_url(str(url))))
        return response.status_code, _lowered(response.headers), raw

    def opened(self, content: bytes) -> AbstractAsyncContextManager[OpenResponse]:
        """Post the content; the body is neither read in advance nor redacted.

        Raises one of `BREAKS`, also while the body is read.
        """
        return self._send(content)

    def _built(self, method: str, url: httpx.URL, **how: Any) -> httpx.Request:
        request = self._client.build_request(method, url.copy_with(userinfo=b""), **how)
        # aiohttp accepts a login in the URL or in a header, but not in both.
        auth = httpx.BasicAuth(url.username, url.password)
        return next(auth.auth_flow(request)) if url.userinfo else request

    def _sender(self) -> Callable[[bytes], AbstractAsyncContextManager[OpenResponse]]:
        """Return a function that posts a body; the common part of all requests is prepared here."""
        request = self._built("POST", httpx.URL(self.url))
        bare = request.url
        del request.headers["content-length"]  # that of the empty body
        # httpx chooses the proxy for a URL here and offers no public name for it.
        transport = self._client._transport_for_url(bare)
        if isinstance(transport, AiohttpTransport):
            if not self._own_encodings:
                del request.headers["accept-encoding"]  # aiohttp announces those it can decode
            proxy = transport.proxy
            if proxy is not None:
                refuse_socks(self.url, str(proxy.url))
            options = {
                "headers": dict(request.headers),
                # A redirect would send the key to another host.
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
            # Not in __init__: a session belongs to the event loop in which it is created. The
            # transport's own session is replaced because it reuses connections without our
            # checks.
            transport.client = aiohttp.ClientSession(
                connector=QuietConnector(transport.ssl_context, KEPT_S),
                response_class=FewInterim,
            )
        async with self._room, transport.client.post(url, data=content, **options) as response:
            # aiohttp unpacks only as much as is read, so a compression bomb beyond the limit
            # stays packed.
            body = response.content
            chunks = LimitedChunks(
                body.iter_chunked(_CHUNK), self._most, lambda: body.total_raw_bytes
            )
            yield OpenResponse(response.status, response.headers, chunks)


def certificates() -> ssl.SSLContext:
    """Return the environment's trusted certificates; raise OSError for an unreadable file.

    They are cached, because reading them blocks the event loop for a tenth of a second.
    """
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _certificates(*_: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context()


@asynccontextmanager
async def _through(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, most: int, content: bytes
) -> AsyncIterator[OpenResponse]:
    """Send the request with this content through the given transport."""
    whole = httpx.Request("POST", request.url, headers=request.headers, content=content)
    response = await transport.handle_async_request(whole)
    try:
        async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_bytes())) as chunks:
            limited = LimitedChunks(chunks, most)
            yield OpenResponse(response.status_code, response.headers, limited)
    finally:
        await response.aclose()


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Return the body as JSON in UTF-8, with lone surrogates replaced."""
    try:
        return _JSON.encode(body).encode()
    except UnicodeEncodeError:
        # Clean only after a failure: traversing a body costs more than encoding it, and few need
        # it.
        return _JSON.encode(clean_json(body)).encode()


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with lower-case names and secrets redacted."""
    lowered = dict[str, str]()
    for name, value in headers.items():
        key = name.lower()
        # A repeated header is one list (RFC 9110, 5.3).
        lowered[key] = f"{lowered[key]}, {value}" if key in lowered else value
    whole = "\n".join((*lowered, *lowered.values()))
    if whole.isascii() and not redactor.suspects(whole):
        return lowered
    return {clean(k): redactor.text(clean(v)) for k, v in lowered.items()}


def request_url(endpoint: Endpoint, path: str | None = None) -> httpx.URL:
    """Return the URL of a path of the endpoint, by default of its API.

    The endpoint's query is added to the URL's own.
    """
    url = httpx.URL(endpoint.base_url)
    url = url.copy_with(path=url.path.rstrip("/") + (path or APIS[endpoint.api].PATH))
    return url.copy_merge_params(dict(endpoint.query)) if endpoint.query else url


def _read_stream(api: ApiName, raw: bytes) -> tuple[str, Any] | None:
    """Return the body in server-sent events, as `read_json` does; None if it was cut off."""
    body = streamed_body(api, raw)
    return None if body is None else (redactor.text(json.dumps(body)), redactor.value(body))


def streamed_body(api: ApiName, raw: bytes, which: int | None = None) -> Any:
    """Return the body in server-sent events; None if it was cut off or is not text.

    See `assemble` for `which` and its error.
    """
    try:
        response = httpx.Response(200, headers={"content-type": EVENTS}, content=_characters(raw))
        events = EventSource(response).iter_sse()
        named = ((event.event, event.data) for event in events if event.data.strip())
        return plain(assemble(api, named, which))
    except (ValueError, RecursionError):
        return None


def _characters(raw: bytes) -> Iterator[bytes]:
    """Yield the text as UTF-8 in small pieces, then the end of its last event.

    Raises:
        ValueError: The bytes are not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()  # the data may end inside a character
    for at in range(0, len(raw), _CHUNK):
        yield decoder.decode(raw[at : at + _CHUNK]).encode()
    yield b"\n\n"  # the stream may end without closing its last event


def connection_failure(error: Exception, where: str) -> ConnectionFailure:
    """Translate one of `BREAKS` into a failure of the connection to `where`."""
    if isinstance(error, OversizeError):
        return ConnectionFailure("oversize", str(error), where)
    causes = _causes(error)
    text = redactor.text(f"{type(causes[-1]).__name__}: {error}")
    if any(isinstance(e, BadStatusLine) for e in causes):
        what = "it is not HTTP, or its body is longer than its Content-Length"
        return ConnectionFailure("cut", f"the response cannot be read: {what}: {text}", where)
    cut = (ssl.SSLEOFError, ssl.SSLZeroReturnError)  # may also happen during the handshake
    # Check TLS first: aiohttp's error for a failed handshake is also a connector error, which
    # would be retried.
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
    """Return the error and its causes, because the libraries wrap the informative one."""
    return [error, *(_causes(error.__cause__) if error.__cause__ is not None else ())]
