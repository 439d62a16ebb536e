"""The local reader, over real connections to this machine: what it reads, and what it refuses."""

import asyncio
import gzip
import os
import ssl
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from grpo_practice.errors import ConfigError
from grpo_practice.tools import ToolError
from grpo_practice.tools.search import local
from grpo_practice.tools.search.guard import Guard
from grpo_practice.tools.search.local import MOST_BYTES, open_local
from grpo_practice.tools.search.markup import page_text
from grpo_practice.tools.search.page import Banned
from tests.tools.search.raw import Raw, raw
from tests.tools.search.ssrf import FORMS, World, attempt, forms, world


@pytest.fixture
async def it() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def test_2_31_no_form_of_a_private_address_is_connected_to(it: World) -> None:
    async with it.reader() as reader:
        tried = 0
        for form, url in forms(it):
            redirects = len(it.served)
            assert await attempt(reader, url) is not None, form
            assert len(it.opened) == len(it.served), form  # the redirecting server's alone
            assert len(it.served) - redirects == form.startswith("302"), form
            tried += 1
    await asyncio.sleep(0.02)
    assert (tried, it.came) == (2 * len(FORMS), 0)


async def test_2_32_a_redirect_to_a_private_address_is_refused_at_the_hop(it: World) -> None:
    async with it.reader() as reader:
        start = f"http://public.example:{it.port}/?to="
        with pytest.raises(ToolError, match="leads to another one: only public pages"):
            await reader.read(f"{start}http://127.0.0.1:{it.trap_port}/")
        with pytest.raises(ToolError, match="leads to another one: only public pages"):
            await reader.read(f"{start}http://rebind.example:{it.trap_port}/")
        page = await reader.read(f"{start}/end")
        assert page.url == f"http://public.example:{it.port}/end"
    assert it.came == 0


async def test_2_32_a_name_that_answers_otherwise_the_second_time_is_not_asked_again(
    it: World,
) -> None:
    it.names["turns.example"] = [["127.0.0.1"], ["127.0.0.2"]]
    async with it.reader() as reader:
        assert (await reader.read(f"http://turns.example:{it.port}/")).text == "Public\n\nHello."
        assert it.looked_up["turns.example"] == 1
        assert it.opened == [("127.0.0.1", it.port)]
        with pytest.raises(ToolError, match="only public pages"):  # a new page, a new look
            await reader.read(f"http://turns.example:{it.port}/")
    assert it.opened == [("127.0.0.1", it.port)]


async def test_2_32_the_address_itself_is_checked_where_the_socket_is_opened(
    it: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should a name ever get past the resolver, the connection is not made."""
    async with it.reader() as reader:

        async def lax(self: Guard, host: str, port: int = 0, family: int = 0) -> object:
            return [
                {"hostname": host, "host": "127.0.0.1", "port": port}
                | {"family": 2, "proto": 6, "flags": 4}
            ]

        monkeypatch.setattr(Guard, "resolve", lax)
        with pytest.raises(ToolError, match="only public pages"):
            await reader.read(f"http://any.example:{it.trap_port}/")
    assert (it.came, it.opened) == (0, [])


async def test_2_31_a_port_that_is_not_the_webs_is_not_looked_up(it: World) -> None:
    async with it.reader() as reader:
        for url in (
            "http://public.example:22/",
            f"http://p.example:{it.port}/?to=//a.example:6379",
        ):
            with pytest.raises(ToolError, match="only ports 80 and 443 are read"):
                await reader.read(url)
    assert it.looked_up.keys() == {"p.example"}


async def test_proxies_of_the_environment_are_left_aside(
    it: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{it.trap_port}")
    async with it.reader() as reader:
        assert (await reader.read(f"http://public.example:{it.port}/")).text
    assert it.came == 0


async def test_a_banned_site_is_not_read_nor_led_to(it: World) -> None:
    async with it.reader() as reader:
        for url in (
            "http://sub.banned.example/",
            f"http://p.example:{it.port}/?to=//banned.example",
        ):
            with pytest.raises(ToolError, match="pages of this site are not read here"):
                await reader.read(url)
    assert it.looked_up["banned.example"] == it.looked_up["sub.banned.example"] == 0


PEM = Path(__file__).parent / "page.pem"
"""Certificate and key of page.example."""


@pytest.mark.parametrize("name", ["page.example", "other.example"])
async def test_the_certificate_is_checked_for_the_name_not_the_address(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    asked = list[str | None]()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    context.sni_callback = lambda _, server_name, __: asked.append(server_name)
    async with raw(answer(b"<p>Hi"), tls=context) as server:
        if name == "page.example":
            assert await read(server, url="https://page.example") == ("Hi", True)
        else:
            with pytest.raises(ToolError, match=r"the page cannot be read: .*certificate"):
                await read(server, url="https://other.example")
    assert asked == [name]


async def test_2_33_redirects_end(it: World) -> None:
    async with raw(
        b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"
    ) as server:
        with pytest.raises(ToolError, match="not reached within 5 redirects"):
            await read(server)
        assert server.asked == 6


def answer(body: bytes, *headers: str, kind: str = "text/html") -> bytes:
    head = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", "Connection: close", *headers, "", ""]
    return "\r\n".join(head).encode() + body


async def read(
    server: Raw, total_s: float = 60.0, url: str = "http://page.example"
) -> tuple[str, bool]:
    """The page of that server."""

    async def lookup(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    guard = Guard(lookup, allow=[("127.0.0.1", server.port)])
    async with open_local(guard, Banned(()), 40_000, total_s=total_s) as reader:
        page = await reader.read(f"{url}:{server.port}/")
    return page.text, page.whole


HERE = str(Path(__file__).parents[3])
"""Folder by whose full path a worker finds this module."""


def hang(
    data: bytes, charset: str | None, url: str, chars: int, is_markup: bool
) -> tuple[str, bool]:
    """Stand in for a page that takes for ever to read, in C code that sees no signal."""
    if data.endswith(b"hard"):
        return str(sum(range(10**13))), True
    return page_text(data, charset, url, chars, is_markup)


def received(data: object, *_: object) -> tuple[str, bool]:
    """Stand in for the worker's function; tell what it was given, and where."""
    return f"{type(data).__name__} {os.getpid()}", True


@pytest.mark.parametrize("kind", ["text/html", "text/plain"])
async def test_a_page_s_bytes_are_looked_at_in_a_process_that_can_be_killed_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", HERE)
    monkeypatch.setattr(local, "page_text", received)
    async with raw(answer(b'<meta charset="latin-1"><p>Hi', kind=kind)) as server:
        text, _ = await read(server)
    what, process = text.split()
    assert what == "bytes"
    assert int(process) != os.getpid()


async def test_2_33_four_kilobytes_of_charsets_are_a_page_as_any_other() -> None:
    """A page that took 12 s, in a thread that no limit ends and that let nothing else run."""
    page = b"<meta" * 38 + b" charset=" + b" " * 4096 + b"><p>Hi"
    async with raw(answer(page)) as server:
        assert await read(server) == ("Hi", True)


@pytest.mark.parametrize("kind", ["text/html", "text/plain"])
async def test_2_33_a_page_that_takes_for_ever_to_read_is_given_up_and_the_next_is_read(
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", HERE)
    monkeypatch.setattr(local, "page_text", hang)
    monkeypatch.setattr(local, "READ_S", 0.5)
    async with raw(answer(b"<p>hard", kind=kind)) as server:
        with pytest.raises(ToolError, match="the page is too hard to read"):
            await read(server)
    async with raw(answer(b"<p>easy")) as server:
        assert await read(server) == ("easy", True)


async def test_workers_that_cannot_start_are_found_before_a_page_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setattr(local, "start_worker", cannot)
    async with raw(answer(b"<p>Hi")) as server:
        with pytest.raises(ConfigError, match="pages cannot start: OSError: it cannot"):
            await read(server)


def cannot(secrets: frozenset[str]) -> None:
    """Stand in for the start of a worker."""
    raise OSError("it cannot")


async def test_2_33_a_body_without_end_is_read_to_the_cap() -> None:
    async with raw(answer(b"", kind="text/plain"), endless=b"0123456789abcdef" * 1024) as server:
        text, whole = await read(server)
    assert (len(text), whole) == (40_000, False)
    assert server.sent < MOST_BYTES + 8 * 1024 * 1024  # what the system's buffers hold


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_2_33_what_would_unpack_to_much_is_unpacked_to_the_cap(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = Counting()
    monkeypatch.setattr("grpo_practice.tools.search.bounded_body.zlib", unpacked)
    bomb = b"<p>" + b"0" * 64 * 1024 * 1024
    body = gzip.compress(bomb, 1) if encoding == "gzip" else zlib.compress(bomb, 1)
    async with raw(answer(body, f"Content-Encoding: {encoding}")) as server:
        text, whole = await read(server)
    assert (len(text), whole) == (40_000, False)
    assert 40_000 < unpacked.bytes <= MOST_BYTES + 1


class Counting:
    """zlib, counting what it unpacks."""

    MAX_WBITS, error = zlib.MAX_WBITS, zlib.error

    def __init__(self) -> None:
        self.bytes = 0

    def decompressobj(self, wbits: int) -> "Counting":
        self._one = zlib.decompressobj(wbits)
        return self

    def decompress(self, data: bytes, most: int = 0) -> bytes:
        out = self._one.decompress(data, most)
        self.bytes += len(out)
        return out


async def test_2_33_a_page_that_trickles_ends_with_the_time() -> None:
    async with raw(answer(b"", kind="text/plain"), endless=b"a", every_s=0.05) as server:
        with pytest.raises(ToolError, match=r"did not come within 0\.3 s"):
            await read(server, total_s=0.3)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (answer(b"<p>Hi"), "Hi"),
        (answer(gzip.compress(b"<p>Hi"), "Content-Encoding: gzip"), "Hi"),
        (answer(zlib.compress(b"<p>Hi"), "Content-Encoding: deflate"), "Hi"),
        (answer(zlib.compress(b"<p>Hi")[2:-4], "Content-Encoding: deflate"), "Hi"),
        (answer(b'{"a": 1}', kind="application/json"), '{"a": 1}'),
        (answer(b"a <b", kind="text/plain"), "a <b"),
        (answer(b"<p>\xe9", kind="text/html; charset=latin-1"), "\u00e9"),
        (b"HTTP/1.0 200 OK\r\n\r\n<p>Hi", "Hi"),
    ],
)
async def test_a_page_is_read(sent: bytes, text: str) -> None:
    async with raw(sent) as server:
        assert await read(server) == (text, True)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (answer(b"%PDF", kind="application/pdf"), "this is a PDF"),
        (answer(b"x", kind="image/png"), "this is image"),
        (answer(b"x", "Content-Encoding: br"), "packed in a way that is not read"),
        (answer(b"xx", "Content-Encoding: gzip"), "cannot be unpacked"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 302"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n", "read"),
        (b"SSH-2.0-OpenSSH\r\n", "cannot be read"),
        (answer(b"x", "Content-Length: 99"), "cannot be read"),
        (answer(b"x", kind="text/html" + ";" * 8000), "its content type is too long"),
        (answer(b"x", kind="(" * 8000), "its content type is too long"),
        (b"", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000, "cannot be read"),
    ],
)
async def test_a_page_that_cannot_be_read_says_why(sent: bytes, said: str) -> None:
    async with raw(sent) as server:
        with pytest.raises(ToolError, match=said):
            await read(server)


@pytest.mark.parametrize(
    "head",
    [
        "302 Found\r\nLocation: javascript:obey-this",
        "302 Found\r\nLocation: http://obey this/",
        "302 Found\r\nLocation: http://obey-this.internal/",
        "302 Found\r\nLocation: http://obey-this.example:99/",
        "200 OK\r\nContent-Type: obey-this/now",
        "200 OK\r\nContent-Encoding: obey-this",
        "200 OK\r\nContent-Length: obey-this",
        "obey-this",
    ],
)
async def test_2_29_no_word_of_a_server_stands_in_an_error(head: str) -> None:
    """An error has no fence."""
    async with raw(f"HTTP/1.1 {head}\r\n\r\n".encode()) as server:
        with pytest.raises(ToolError) as e:
            await read(server)
    assert "obey" not in str(e.value)
