"""The only module that touches the HTTP libraries: one POST becomes an `Answer` or a `Broken`.

The aiohttp transport is used because httpx's own pool loses slots when requests are cancelled
and slows down with many connections. That transport reports a refused connection and a reset
one alike, so the cause is read from the chain of exceptions.
"""

import codecs
import json
import re
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, cast

import aiohttp
import httpx
from httpx_aiohttp import HttpxAiohttpClient
from httpx_sse import EventSource

from grpo_practice.errors import ConfigError
from grpo_practice.llm.answer import Answer, Broken, decode, plain
from grpo_practice.llm.endpoint import Endpoint, shown_url
from grpo_practice.llm.stream import assemble
from grpo_practice.redact import redactor

_EVENTS = "text/event-stream"
_END = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]\s*\Z")
_TAIL = 64
"""Bytes at the end of a stream in which its last event is looked for."""


def open_http(
    endpoint: Endpoint, connections: int, transport: httpx.AsyncBaseTransport | None
) -> httpx.AsyncClient:
    """An HTTP client for the endpoint, with room for that many requests at once.

    Proxies and certificates are taken from the environment, except with a `transport` of one's
    own. There is no read timeout: the caller's deadline is over the whole request.

    Raises:
        ConfigError: A proxy variable or the certificate file cannot be used.
    """
    try:
        return HttpxAiohttpClient(
            headers=endpoint.request_headers(),
            timeout=httpx.Timeout(None, connect=endpoint.connect_timeout_s),
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


def chat_url(base_url: str, endpoint: Endpoint) -> httpx.URL:
    """Where chat completions are asked for, with the endpoint's query added to the URL's own."""
    url = httpx.URL(base_url)
    url = url.copy_with(path=url.path.rstrip("/") + "/chat/completions")
    return url.copy_merge_params(dict(endpoint.query)) if endpoint.query else url


async def post(http: httpx.AsyncClient, url: str, content: bytes) -> tuple[Answer | Broken, bool]:
    """Send it and read the answer to its end, secrets replaced; a streamed one put together.

    Returns:
        What came back, and whether the beginning of a 2xx arrived: it may have been billed.
    """
    begun, streamed, raw = False, False, bytearray()
    where = redactor.text(shown_url(url))
    lost = Broken("cut", "the stream broke off, or is no text", where)
    try:
        bare, auth = _login(httpx.URL(url))
        async with http.stream("POST", bare, content=content, auth=auth) as response:
            begun = response.is_success
            kind = response.headers.get("content-type", "")
            streamed = begun and kind.lower().startswith(_EVENTS)
            pieces = cast("AsyncGenerator[bytes]", response.aiter_bytes())
            async with aclosing(pieces) as chunks:
                async for chunk in chunks:
                    raw += chunk
                    if streamed and _END.search(raw, max(0, len(raw) - _TAIL)):
                        break  # some servers leave the connection open
    except (httpx.HTTPError, aiohttp.ClientError, OSError, ValueError) as e:
        # ValueError: what aiohttp raises for a malformed answer or an unusable proxy
        lost = _broken(e, where)
        if not streamed:
            return lost, begun
    body = _streamed(bytes(raw)) if streamed else decode(bytes(raw))
    if streamed and body is None:
        return lost, begun
    return Answer(
        status=response.status_code,
        headers=redactor.value({k.lower(): v for k, v in response.headers.items()}),
        text=redactor.text(json.dumps(body) if streamed else raw.decode(errors="replace")),
        body=redactor.value(body),
        url=where,
    ), begun


def _login(url: httpx.URL) -> tuple[httpx.URL, httpx.BasicAuth | None]:
    """The URL without its user, and what says who that is: aiohttp takes only one of them."""
    if not url.userinfo:
        return url, None
    return url.copy_with(userinfo=b""), httpx.BasicAuth(url.username, url.password)


def _streamed(raw: bytes) -> Any:
    """The body that came as server-sent events; None when it was cut, or is no text.

    Read from its end, so it makes no difference where the network divided it.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(raw)  # may be cut inside a character
        whole = f"{text}\n\n".encode()  # the last event ends where the stream does
        response = httpx.Response(200, headers={"content-type": _EVENTS}, content=whole)
        events = EventSource(response).iter_sse()
        return plain(assemble((event.event, event.data) for event in events if event.data.strip()))
    except (ValueError, RecursionError):
        return None


def _broken(error: Exception, where: str) -> Broken:
    causes = list(_chain(error))
    text = redactor.text(f"{type(causes[-1]).__name__}: {error}")
    if any(_is_tls(e) for e in causes):
        return Broken("tls", text, where)
    proxy = (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError, httpx.ProxyError)
    if any(isinstance(e, proxy) for e in causes):
        return Broken("proxy", text, where)
    connect = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, httpx.ConnectError)
    if any(isinstance(e, connect) for e in causes):
        return Broken("connect", text, where)
    return Broken("cut", text, where)


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
