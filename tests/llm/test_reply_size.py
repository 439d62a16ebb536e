"""Replies without end, and packed ones: what is read of them is bounded, and is said."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Iterator
from itertools import repeat

import pytest

from grpo_practice.core.calls import Request
from grpo_practice.core.errors import EndpointError, EndpointRefusedError, ReplyTooLargeError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.http import ERROR_BYTES, Http
from grpo_practice.llm.size_limit import MAX_RATIO, PACKED_FREE, OversizeError
from tests.fakes import FakeSleep
from tests.llm.test_http import ASK, Serve, read_request, serving

MIB = 2**20
LONG = 200 * MIB
"""Bytes after which an endless body ends all the same, so that a test without a limit fails."""
IN_FLIGHT = 32 * MIB
"""Bytes that may be in the buffers of two sockets."""
READ_AHEAD = 320 * 1024
"""Packed bytes that may be read from the socket before any of them are unpacked."""
HEAD = "HTTP/1.1 %s\r\nContent-Type: %s\r\nConnection: close\r\n%s\r\n"
JSON, EVENTS = "application/json", "text/event-stream"


class Endless:
    """A server whose answers do not end; it counts what it could send."""

    def __init__(
        self,
        piece: bytes,
        *,
        status: str = "200 OK",
        kind: str = JSON,
        first: bytes = b"",
        encoding: str = "",
    ) -> None:
        packed = f"Content-Encoding: {encoding}\r\n" if encoding else ""
        self.head = (HEAD % (status, kind, packed)).encode() + first
        self.piece, self.sent, self.requests = piece, list[int](), 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        n = self.requests
        self.requests += 1
        self.sent.append(0)
        writer.write(self.head)
        while self.sent[n] < LONG:
            writer.write(self.piece)
            await writer.drain()
            self.sent[n] += len(self.piece)


def client_of(address: str, *, most: int = 4 * MIB, told: list[str] | None = None) -> Client:
    endpoint = Endpoint(f"http://{address}/v1", "a-key", max_tries=3, max_reply_bytes=most)
    notice = (told if told is not None else []).append
    return Client(endpoint, Limit(4), notice=notice, sleep=FakeSleep())


def bomb(mebibytes: int) -> tuple[bytes, bytes]:
    """Return the head of a gzip stream, and what unpacks to so many MiB of zeros after it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10], block * mebibytes


@pytest.mark.parametrize(
    ("piece", "kind"),
    [(b" " * 65_536, JSON), (b": keep-alive\n\n" * 5_000, EVENTS), (b"x" * 65_536, EVENTS)],
)
async def test_a_reply_without_end_is_left_at_the_limit(piece: bytes, kind: str) -> None:
    server = Endless(piece, kind=kind)
    async with serving(server) as address, client_of(address) as client:
        with pytest.raises(ReplyTooLargeError) as caught:
            await client.send(ASK)
    assert "larger than 4 MiB; to read it, raise model_provider.max_reply_mib" in str(caught.value)
    assert (caught.value.kind, caught.value.broken) == ("reply_too_large", "oversize")
    assert (caught.value.tries, caught.value.maybe_paid) == (1, True)
    assert server.requests == 1, "a reply that is too large is paid, and would be so again"
    assert server.sent[0] < 4 * MIB + IN_FLIGHT


async def read_of(server: Serve, most: int) -> tuple[int, str]:
    """Return how many bytes of an answer were given out, and why no more."""
    size = 0
    async with serving(server) as address:
        url = f"http://{address}/v1"
        http = Http(Endpoint(url, max_reply_bytes=most), 1, None)
        try:
            async with http.opened(b"{}") as response:
                async for chunk in response.chunks:
                    size += len(chunk)
        except OversizeError as e:
            return size, str(e)
        finally:
            await http.aclose()
    return size, ""


async def test_what_is_read_stops_at_the_limit() -> None:
    size, why = await read_of(Endless(b"x" * 65_536), 3 * MIB)
    assert 2 * MIB < size <= 3 * MIB
    assert "larger than 3 MiB" in why


@pytest.mark.parametrize("kind", [JSON, EVENTS])
async def test_4_mb_that_unpack_to_4_gib_are_not_unpacked(kind: str) -> None:
    head, packed = bomb(4 * 1024)
    assert len(packed) < 5_000_000
    size, why = await read_of(Endless(packed, kind=kind, first=head, encoding="gzip"), 64 * MIB)
    assert PACKED_FREE - MIB < size < READ_AHEAD * MAX_RATIO
    assert f"unpacks to more than {MAX_RATIO} times" in why
    server = Endless(packed, kind=kind, first=head, encoding="gzip")
    async with serving(server) as address, client_of(address, most=64 * MIB) as client:
        with pytest.raises(ReplyTooLargeError) as caught:
            await client.send(ASK)
    assert (caught.value.tries, caught.value.maybe_paid) == (1, True)


async def test_a_packed_reply_that_repeats_itself_is_read() -> None:
    body = json.dumps({"choices": [{"message": {"content": "24 " * (2 * MIB)}}]}).encode()
    packed = gzip.compress(body)
    assert len(body) > MAX_RATIO * len(packed)
    head = (HEAD % ("200 OK", JSON, "Content-Encoding: gzip\r\n")).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head + packed)
        await writer.drain()

    async with serving(serve) as address, client_of(address, most=64 * MIB) as client:
        assert len((await client.send(ASK)).content) == 6 * MIB


@pytest.mark.long
async def test_of_an_error_answer_the_status_counts_whatever_its_length() -> None:
    busy = Endless(b"x" * 65_536, status="503 Busy")
    async with serving(busy) as address, client_of(address) as client:
        with pytest.raises(EndpointError) as caught:
            await client.send(ASK)
    assert (caught.value.status, caught.value.tries) == (503, 3)
    assert not caught.value.maybe_paid
    assert max(busy.sent) < ERROR_BYTES + IN_FLIGHT
    head, packed = bomb(1024)
    for server in (
        Endless(b"x" * 65_536, status="401 No"),
        Endless(packed, status="401 No", first=head, encoding="gzip"),
    ):
        async with serving(server) as address, client_of(address) as client:
            with pytest.raises(EndpointRefusedError, match="refused the API key"):
                await client.send(ASK)
        assert max(server.sent) < ERROR_BYTES + IN_FLIGHT


def reasoned(size: int, *, streamed: bool) -> Iterator[bytes]:
    """Yield the answer with so many characters of reasoning, as servers send it."""
    kind = EVENTS if streamed else JSON
    yield (HEAD % ("200 OK", kind, "")).encode()
    if not streamed:
        message = {"role": "assistant", "reasoning_content": "w" * size, "content": "24"}
        yield json.dumps({"choices": [{"message": message}]}).encode()
        return
    for delta in (*repeat({"reasoning_content": "w" * 2_000}, size // 2_000), {"content": "24"}):
        yield f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()
    yield b"data: [DONE]\n\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "most", "shown"),
    [(12_500_000, 16, "11.9"), pytest.param(50_000_000, 64, "47.7", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_much_reasoning_is_read_and_said_so(
    streamed: bool, size: int, most: int, shown: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for part in reasoned(size, streamed=streamed):
            writer.write(part)
            await writer.drain()

    told = list[str]()
    async with serving(serve) as address, client_of(address, most=most * MIB, told=told) as client:
        reply = await client.send(ASK)
        await client.send(Request("m-1", {"seed": 6}, ASK.messages))
    assert (reply.content, len(reply.message["reasoning_content"])) == ("24", size)
    where = f"http://{address}/v1/chat/completions"
    assert told == [
        f"m-1 at {where}: a reply of {shown} MiB, {shown} MiB of it reasoning; the limit is"
        f" {most} MiB (model_provider.max_reply_mib)"
    ]
