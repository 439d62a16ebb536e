"""The local reader, where only its inside can be held still: time, memory, workers, sockets."""

import gzip
import os
import zlib
from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.search import local
from grpo_practice.rollout.tools.search.guard import Guard
from grpo_practice.rollout.tools.search.local import MOST_BYTES, open_local
from grpo_practice.rollout.tools.search.markup import page_text
from grpo_practice.rollout.tools.search.page import Banned
from tests.contract.test_tools_reader import answer
from tests.rollout.tools.search.raw import Raw, raw


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


async def test_2_32_the_address_itself_is_checked_where_the_socket_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Should a name ever get past the resolver, the connection is not made."""

    async def lax(self: Guard, host: str, port: int = 0, family: int = 0) -> object:
        found = {"hostname": host, "host": "127.0.0.1", "port": port}
        return [found | {"family": 2, "proto": 6, "flags": 4}]

    monkeypatch.setattr(Guard, "resolve", lax)
    async with raw(answer(b"<p>Hi")) as server:
        async with open_local(Guard(ports=[server.port]), Banned(()), 40_000) as reader:
            with pytest.raises(ToolError, match="only public pages"):
                await reader.read(f"http://any.example:{server.port}/")
        assert server.asked == 0


HERE = str(Path(__file__).parents[4])
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


@pytest.mark.long
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


@pytest.mark.long
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
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    monkeypatch.setattr(local, "start_worker", cannot)
    async with raw(answer(b"<p>Hi")) as server:
        with pytest.raises(ConfigError, match="pages cannot start: OSError: it cannot"):
            await read(server)


def cannot(secrets: frozenset[str]) -> None:
    """Stand in for the start of a worker."""
    raise OSError("it cannot")


@pytest.mark.long_after(1)
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_2_33_what_would_unpack_to_much_is_unpacked_to_the_cap(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = Counting()
    monkeypatch.setattr("grpo_practice.rollout.tools.search.bounded_body.zlib", unpacked)
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
        with pytest.raises(ToolError, match=r"did not arrive within 0\.3 s"):
            await read(server, total_s=0.3)
