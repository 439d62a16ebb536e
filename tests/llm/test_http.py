"""The HTTP client against real sockets on this machine."""

import asyncio
import gzip
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from grpo_practice.core.calls import Request
from grpo_practice.core.errors import ConfigError, EndpointError, EndpointRefusedError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.http import Http
from grpo_practice.llm.http_response import Response
from tests.fakes import FakeSleep
from tests.processes import HANG_S

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PEM = Path(__file__).with_name("localhost.pem")
"""A key and a self-signed certificate for 127.0.0.1, good for nothing else."""
ASK = Request("m-1", {"seed": 5}, [{"role": "user", "content": "hi"}])
BODY = b'{"choices":[{"message":{"role":"assistant","content":"24"}}]}'
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@asynccontextmanager
async def serving(serve: Serve, *, tls: bool = False) -> AsyncIterator[str]:
    """A server that handles each connection with `serve`; its address without the scheme."""
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(PEM)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, as it may
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        yield "127.0.0.1:%d" % server.sockets[0].getsockname()[1]  # noqa: UP031


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (
            int(x.split(b":")[1])
            for x in head.split(b"\r\n")
            if x[:15].lower() == b"content-length:"
        ),
        0,
    )
    return head + await reader.readexactly(length)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A good reply to every request of the connection."""
    while True:
        await read_request(reader)
        writer.write(OK % len(BODY) + BODY)
        await writer.drain()


def connect(url: str, *, n: int = 8, timeout_s: float = 5, max_tries: int = 2) -> Client:
    endpoint = Endpoint(url, timeout_s=timeout_s, max_tries=max_tries)
    return Client(endpoint, Limit(n), notice=lambda _: None, sleep=FakeSleep())


async def closed_port() -> str:
    async with serving(answer) as address:
        pass
    return address


async def test_a_reply_comes_over_a_real_socket() -> None:
    async with serving(answer) as address, connect(f"http://{address}/v1") as client:
        got = await client.send(ASK)
    assert (got.content, got.answered_by) == ("24", f"m-1@{address}")


async def test_the_login_in_a_url_goes_with_the_request_and_the_url_without_it() -> None:
    heads: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_request(reader))
        writer.write(OK % len(BODY) + BODY)
        await writer.drain()

    async with serving(listen) as address, connect(f"http://ann:p%2Fw@{address}/v1") as client:
        got = await client.send(ASK)
    assert got.content == "24"
    assert b"uthorization: Basic " + b64encode(b"ann:p/w") + b"\r\n" in heads[0]
    assert heads[0].startswith(b"POST /v1/chat/completions ")
    assert b"ann" not in heads[0]


async def test_1_18_a_refused_connection_is_cannot_reach() -> None:
    address = await closed_port()
    async with connect(f"http://{address}/v1") as client:
        with pytest.raises(EndpointRefusedError, match=f"cannot reach http://{address}/v1"):
            await client.send(ASK)


async def test_1_21_a_body_that_is_cut_is_retried_and_may_have_been_paid() -> None:
    connections = 0

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(OK % 5000 + BODY)
        await writer.drain()

    async with serving(cut) as address, connect(f"http://{address}/v1") as client:
        with pytest.raises(EndpointError, match="the connection broke") as caught:
            await client.send(ASK)
    assert caught.value.maybe_paid
    assert connections == 2


async def test_1_21_a_connection_closed_before_the_answer_is_retried_and_was_not_paid() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async with serving(hang_up) as address, connect(f"http://{address}/v1") as client:
        with pytest.raises(EndpointError, match="the connection broke") as caught:
            await client.send(ASK)
    assert not caught.value.maybe_paid
    assert caught.value.tries == 2


async def test_an_answer_that_is_not_http_is_retried() -> None:
    async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"\x00\x01 garbage\r\n\r\n")
        await writer.drain()

    async with serving(garble) as address, connect(f"http://{address}/v1") as client:
        with pytest.raises(EndpointError, match="the connection broke") as caught:
            await client.send(ASK)
    assert caught.value.tries == 2


@pytest.mark.parametrize("length", [len(BODY) - 10, len(BODY) - 1])
async def test_a_body_longer_than_its_content_length_is_said_and_may_have_been_paid(
    length: int,
) -> None:
    async def surplus(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK % length + BODY)
        await writer.drain()

    async with serving(surplus) as address, connect(f"http://{address}/v1") as client:
        with pytest.raises(EndpointError, match="longer than its Content-Length") as caught:
            await client.send(ASK)
    assert (caught.value.maybe_paid, caught.value.broken) == (True, "cut")


@pytest.mark.parametrize("drip", [b"{", b"\n", b": keep-alive\n\n"])
async def test_1_22_a_body_that_drips_for_ever_is_ended_by_the_total_deadline(drip: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK % 10**9)
        while True:
            writer.write(drip)
            await writer.drain()
            await asyncio.sleep(0.01)

    async with (
        serving(serve) as address,
        connect(f"http://{address}/v1", timeout_s=0.1) as client,
    ):
        async with asyncio.timeout(HANG_S):
            with pytest.raises(EndpointError, match="no complete response in time") as caught:
                await client.send(ASK)
    assert caught.value.maybe_paid
    assert caught.value.tries == 2


async def test_1_24_an_unknown_certificate_stops_the_run_and_the_hint_is_true(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(answer, tls=True) as address:
        url = f"https://{address}/v1"
        async with connect(url) as client:
            with pytest.raises(EndpointRefusedError, match=r"(?i)certificate") as caught:
                await client.send(ASK)
        assert "SSL_CERT_FILE" in str(caught.value.hint)
        monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
        async with connect(url) as client:
            assert (await client.send(ASK)).content == "24"


async def test_1_24_https_to_a_server_without_tls_is_not_retried() -> None:
    connections = 0

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with serving(plain) as address, connect(f"https://{address}/v1") as client:
        with pytest.raises(EndpointRefusedError, match="no secure connection") as caught:
            await client.send(ASK)
    assert "http://" in str(caught.value.hint)
    assert connections == 1


async def test_1_25_a_proxy_that_is_not_there_is_named_and_no_proxy_is_honoured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = await closed_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://{proxy}")
    async with serving(answer) as address:
        async with connect(f"http://{address}/v1") as client:
            with pytest.raises(EndpointRefusedError, match=f"the proxy .*{proxy}") as caught:
                await client.send(ASK)
        assert "NO_PROXY" in str(caught.value.hint)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        async with connect(f"http://{address}/v1") as client:
            assert (await client.send(ASK)).content == "24"


async def test_1_25_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forbid(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(forbid) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy}")
        async with connect("https://127.0.0.1:9/v1") as client:
            with pytest.raises(EndpointRefusedError, match=f"the proxy .*403.*{proxy}"):
                await client.send(ASK)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_1_25_the_password_of_a_proxy_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def login(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Login\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(login) as proxy:
        dead = await closed_port()
        for address, target in (
            (proxy, "https://127.0.0.1:9/v1"),
            (proxy, "http://127.0.0.1:9/v1"),
            (dead, "https://127.0.0.1:9/v1"),
            (dead, "http://127.0.0.1:9/v1"),
        ):
            for scheme in ("HTTP_PROXY", "HTTPS_PROXY"):
                monkeypatch.setenv(scheme, f"http://someone:pass-77-word@{address}")
            async with connect(target) as client:
                with pytest.raises(EndpointRefusedError, match=f"proxy.*{address}") as caught:
                    await client.send(ASK)
            assert "pass-77-word" not in f"{caught.value} {caught.value.hint}"
    monkeypatch.setenv("HTTP_PROXY", "ftp://someone:pass-77-word@127.0.0.1:9")
    with pytest.raises(ConfigError, match="network settings") as unusable:
        connect("http://127.0.0.1:9/v1")
    assert "pass-77-word" not in str(unusable.value)


async def test_network_settings_that_cannot_be_used_are_a_config_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    with pytest.raises(ConfigError, match="network settings") as caught:
        connect("https://127.0.0.1:9/v1")
    assert "SSL_CERT_FILE" in str(caught.value.hint)


async def test_1_27_after_many_cancelled_requests_the_next_one_succeeds() -> None:
    hang, came = True, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            came.set()
            if hang:
                await reader.read()  # until the client goes
                return
            writer.write(OK % len(BODY) + BODY)
            await writer.drain()

    async with serving(serve) as address, connect(f"http://{address}/v1", n=16) as client:
        tasks = [asyncio.create_task(client.send(ASK)) for _ in range(300)]
        await came.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        hang = False
        async with asyncio.timeout(HANG_S):
            got = await asyncio.gather(*(client.send(ASK) for _ in range(64)))
    assert {reply.content for reply in got} == {"24"}


async def test_a_compressed_reply_is_read_and_headers_are_searched_for_secrets() -> None:
    heads: list[bytes] = []
    secret = "sk-live-0123456789"

    async def squeeze(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_request(reader))
        body = gzip.compress(BODY)
        more = b"Content-Encoding: gzip\r\nX-Echo: %b \xe9\r\nX-Echo: 2\r\n\r\n" % secret.encode()
        writer.write((OK % len(body)).removesuffix(b"\r\n") + more + body)
        await writer.drain()

    async with serving(squeeze) as address:
        endpoint = Endpoint(f"http://{address}/v1", api_key=secret)
        http = Http(endpoint, 1, None)
        came, begun = await http.post(b"{}")
        await http.aclose()
    assert isinstance(came, Response)
    assert begun
    assert came.body == {"choices": [{"message": {"role": "assistant", "content": "24"}}]}
    assert came.headers["x-echo"] == "*** \ufffd, 2"
    assert b"gzip" in heads[0].lower()
    assert secret.encode() in heads[0]
