"""The only module that touches the HTTP libraries: one POST becomes an `Answer` or a `Broken`.

aiohttp is used because httpx's own pool loses slots when requests are cancelled and slows down
with many connections. What httpx knows of the environment (proxies, certificates) is asked once
for each URL; the requests then go to aiohttp directly, since building httpx's own request and
response costs more than all the rest of a call.
"""

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
from httpx_aiohttp import AiohttpTransport, HttpxAiohttpClient
from httpx_sse import EventSource

from grpo_practice.canonical import clean
from grpo_practice.errors import ConfigError
from grpo_practice.llm.endpoint import Endpoint, shown_url
from grpo_practice.llm.http_response import ConnectionFailure, Response, plain, read_json
from grpo_practice.llm.open_files import descriptors
from grpo_practice.llm.stream import assemble
from grpo_practice.redact import redactor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_EVENTS = "text/event-stream"
_END = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]\s*\Z")
_TAIL = 64
"""Bytes at the end of a stream in which its last event is looked for."""
_CHUNK = 16 * 1024

BREAKS = (httpx.HTTPError, aiohttp.ClientError, OSError, ValueError)
"""What is raised where a connection breaks; ValueError for a malformed answer, or a bad proxy."""


@dataclass(frozen=True, slots=True)
class Came:
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
    """The way to one URL, with all that is equal for every request to it."""

    where: str
    """The URL as it is shown."""
    send: Callable[[bytes], AbstractAsyncContextManager[Came]]
    """What comes back for a body."""


class Http:
    """The connections to one endpoint, with room for that many requests at once.

    Proxies and certificates are taken from the environment, except with a `transport` of one's
    own. There is no read timeout: the caller's deadline is over the whole request.

    Raises:
        ConfigError: A proxy variable or the certificate file cannot be used, or the system does
            not let a process have that many connections.
    """

    def __init__(
        self, endpoint: Endpoint, connections: int, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        try:
            self._client = HttpxAiohttpClient(
                headers=endpoint.request_headers(),
                verify=certificates() if transport is None else True,
                limits=httpx.Limits(
                    max_connections=connections,
                    max_keepalive_connections=connections,
                    keepalive_expiry=5.0,
                ),
                transport=transport,
            )
        except (OSError, ValueError, httpx.InvalidURL) as e:
            raise ConfigError(
                f"the environment's network settings cannot be used: {type(e).__name__}: {e}",
                hint="check SSL_CERT_FILE, SSL_CERT_DIR, HTTP_PROXY, HTTPS_PROXY and ALL_PROXY",
            ) from e
        self._patience = aiohttp.ClientTimeout(sock_connect=endpoint.connect_timeout_s)
        self._own_encodings = any(k.lower() == "accept-encoding" for k in endpoint.headers)
        self._lines = dict[str, _Line]()
        self._connections = connections if transport is None else 0
        descriptors.take(self._connections)

    async def aclose(self) -> None:
        """Nothing is open any more."""
        descriptors.give(self._connections)
        self._connections = 0
        await self._client.aclose()

    async def post(self, url: str, content: bytes) -> tuple[Response | ConnectionFailure, bool]:
        """Send it and read the answer to its end, secrets replaced; a streamed one put together.

        Returns:
            What came back, and whether the beginning of a 2xx arrived: it may have been billed.
        """
        line = self._to(url)
        begun, streamed, raw = False, False, bytearray()
        lost = ConnectionFailure("cut", "the stream broke off, or is no text", line.where)
        try:
            async with line.send(content) as came:
                begun = 200 <= came.status < 300
                streamed = begun and came.is_stream
                async for chunk in came.chunks:
                    raw += chunk
                    if streamed and _END.search(raw, max(0, len(raw) - _TAIL)):
                        break  # some servers leave the connection open
        except BREAKS as e:
            lost = broken(e, line.where)
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
        return Response(came.status, _lowered(came.headers), text, body, line.where), begun

    def opened(self, url: str, content: bytes) -> AbstractAsyncContextManager[Came]:
        """What comes back for it, its body as it comes: not read ahead, nothing in it replaced.

        Raises one of `BREAKS`, also while the body is read.
        """
        return self._to(url).send(content)

    def _to(self, url: str) -> _Line:
        return self._lines.get(url) or self._line(url)

    def _line(self, url: str) -> _Line:
        bare, auth = _login(httpx.URL(url))
        request = self._client.build_request("POST", bare)
        if auth is not None:
            request = next(auth.auth_flow(request))
        del request.headers["content-length"]  # of this empty one
        # the proxy for a URL: httpx decides it here, and has no public name for that
        transport = self._client._transport_for_url(bare)
        if isinstance(transport, AiohttpTransport):
            if not self._own_encodings:
                del request.headers["accept-encoding"]  # aiohttp names those it can read
            proxy = transport.proxy
            options = {
                "headers": dict(request.headers),
                "allow_redirects": False,
                "timeout": self._patience,
                "proxy": str(proxy.url) if proxy else None,
                "proxy_auth": aiohttp.BasicAuth(*proxy.auth) if proxy and proxy.auth else None,
                "proxy_headers": proxy.headers if proxy else None,
            }
            send = partial(_over_network, transport, str(request.url), options)
        else:
            send = partial(_through, transport, request)
        return self._lines.setdefault(url, _Line(redactor.text(shown_url(url)), send))


def certificates() -> ssl.SSLContext:
    """Whom to trust, as the environment says it.

    Read once: it takes a tenth of a second, which an event loop had better not stand still.

    Raises:
        OSError: A file it names cannot be read.
    """
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _certificates(*_: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context()


@asynccontextmanager
async def _over_network(
    transport: AiohttpTransport, url: str, options: Mapping[str, Any], content: bytes
) -> AsyncIterator[Came]:
    """What the network answers to a POST with that content."""
    if not isinstance(transport.client, aiohttp.ClientSession):
        transport.client = transport.get_client()
    async with transport.client.post(url, data=content, **options) as response:
        yield Came(response.status, response.headers, response.content.iter_chunked(_CHUNK))


@asynccontextmanager
async def _through(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, content: bytes
) -> AsyncIterator[Came]:
    """What a transport of one's own answers to the request with that content."""
    whole = httpx.Request("POST", request.url, headers=request.headers, content=content)
    response = await transport.handle_async_request(whole)
    try:
        async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_bytes())) as chunks:
            yield Came(response.status_code, response.headers, chunks)
    finally:
        await response.aclose()


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers by their names in lower case, secrets replaced."""
    found = dict[str, str]()
    for name, value in headers.items():
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    whole = "\n".join((*found, *found.values()))
    if whole.isascii() and not redactor.suspects(whole):
        return found
    return {clean(k): redactor.text(clean(v)) for k, v in found.items()}


def chat_url(base_url: str, endpoint: Endpoint) -> httpx.URL:
    """Where chat completions are asked for, with the endpoint's query added to the URL's own."""
    url = httpx.URL(base_url)
    url = url.copy_with(path=url.path.rstrip("/") + "/chat/completions")
    return url.copy_merge_params(dict(endpoint.query)) if endpoint.query else url


def _login(url: httpx.URL) -> tuple[httpx.URL, httpx.BasicAuth | None]:
    """The URL without its user, and what says who that is: aiohttp takes only one of them."""
    if not url.userinfo:
        return url, None
    return url.copy_with(userinfo=b""), httpx.BasicAuth(url.username, url.password)


def streamed_body(raw: bytes, choice: int | None = None) -> Any:
    """The body that came as server-sent events; None when it was cut, or is no text.

    Read from its end, so it makes no difference where the network divided it. See `assemble` for
    `choice`.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(raw)  # may be cut inside a character
        whole = f"{text}\n\n".encode()  # the last event ends where the stream does
        response = httpx.Response(200, headers={"content-type": _EVENTS}, content=whole)
        events = EventSource(response).iter_sse()
        told = ((event.event, event.data) for event in events if event.data.strip())
        return plain(assemble(told, choice))
    except (ValueError, RecursionError):
        return None


def broken(error: Exception, where: str) -> ConnectionFailure:
    """What one of `BREAKS` says of the way to an endpoint."""
    causes = list(_chain(error))
    text = redactor.text(f"{type(causes[-1]).__name__}: {error}")
    if any(_is_tls(e) for e in causes):
        return ConnectionFailure("tls", text, where)
    proxy = (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError, httpx.ProxyError)
    if any(isinstance(e, proxy) for e in causes):
        return ConnectionFailure("proxy", text, where)
    connect = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, httpx.ConnectError)
    if any(isinstance(e, connect) for e in causes):
        return ConnectionFailure("connect", text, where)
    return ConnectionFailure("cut", text, where)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, outermost first."""
    step: BaseException | None = error
    while step is not None:
        yield step
        step = step.__cause__


def _is_tls(error: BaseException) -> bool:
    """True for a certificate or protocol error, not for a connection cut in the handshake."""
    lost = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    return isinstance(error, ssl.SSLError) and not isinstance(error, lost)
