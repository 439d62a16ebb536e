"""The only module that touches the HTTP libraries: one POST becomes an `Answer` or a `Broken`.

The aiohttp transport is used because httpx's own pool loses slots when requests are cancelled
and slows down with many connections. That transport reports a refused connection and a reset
one alike, so the cause is read from the chain of exceptions.
"""

import ssl
from collections.abc import Iterator

import aiohttp
import httpx
from httpx_aiohttp import HttpxAiohttpClient

from grpo_practice.errors import ConfigError
from grpo_practice.llm.answer import Answer, Broken, decode
from grpo_practice.llm.endpoint import Endpoint, shown_url


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


async def post(
    http: httpx.AsyncClient, url: httpx.URL, content: bytes, endpoint: Endpoint
) -> tuple[Answer | Broken, bool]:
    """Send it and read the answer to its end, secrets replaced.

    Returns:
        What came back, and whether the beginning of a 2xx arrived: it may have been billed.
    """
    begun = False
    where = endpoint.redact(shown_url(str(url)))
    try:
        async with http.stream("POST", url, content=content) as response:
            begun = response.is_success
            raw = await response.aread()
    except (httpx.HTTPError, aiohttp.ClientError, OSError, ValueError) as e:
        # ValueError: what aiohttp raises for a malformed answer or an unusable proxy
        return _broken(e, where, endpoint), begun
    return Answer(
        status=response.status_code,
        headers=endpoint.redact({k.lower(): v for k, v in response.headers.items()}),
        text=endpoint.redact(raw.decode(errors="replace")),
        body=endpoint.redact(decode(raw)),
        url=where,
    ), begun


def _broken(error: Exception, where: str, endpoint: Endpoint) -> Broken:
    causes = list(_chain(error))
    text = endpoint.redact(f"{type(causes[-1]).__name__}: {error}")
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
