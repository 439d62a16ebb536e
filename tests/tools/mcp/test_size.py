"""A server that sends without end, or what unpacks without end, fails its call alone."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.tools import McpToolkit
from grpo_practice.errors import EndpointRefusedError
from grpo_practice.llm.size_limit import MEBIBYTE
from grpo_practice.tools import ToolError
from grpo_practice.tools.mcp.limited_body import MOST
from grpo_practice.tools.mcp.server import IN_A_ROW
from tests.tools.mcp.kits import alive, ask, kit, opened

BLOCK = b"x" * 2**16
BOMB = gzip.compress(bytes(2**26))
"""64 KB that unpack to 64 MiB."""


async def test_a_line_without_end_ends_the_program_and_fails_its_call(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with opened(kit("well", str(notes))) as tools:
        first = int(await ask(tools["pid"]))
        with pytest.raises(ToolError, match="a message larger than 16 MiB and was ended"):
            await ask(tools["flood"])
        assert int(await ask(tools["pid"])) != first
    assert not alive(first)
    # asyncio buffers twice the limit; the pipe has a little more.
    assert notes.read_text().count("MiB") <= 2 * MOST // MEBIBYTE + 2


async def test_a_server_that_only_floods_stops_the_run() -> None:
    async with opened(kit()) as tools:
        for _ in range(IN_A_ROW - 1):
            with pytest.raises(ToolError):
                await ask(tools["flood"])
        with pytest.raises(EndpointRefusedError, match="5 times in a row it answered nothing"):
            await ask(tools["flood"])


async def test_a_result_below_the_limit_is_read_whole() -> None:
    async with opened(kit()) as tools:
        assert len(await ask(tools["say"], n=2_000_000)) == 2_000_000


class Web:
    """A server over HTTP whose tool answers in a chosen way; `sent` counts its bytes."""

    def __init__(self, how: str) -> None:
        self.how, self.sent, self.port = how, 0, 0

    @property
    def kit(self) -> McpToolkit:
        config = {"url": f"http://127.0.0.1:{self.port}/mcp"}
        given = {"name": "web", "mode": "mcp", "mcp_transport": "streamable_http"}
        return McpToolkit.model_validate(given | {"config": config})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length:")[2].split("\r\n")[0] or 0)
            message = json.loads(await reader.readexactly(size) or b"{}")
            await self._answer(message, writer)
        writer.close()

    async def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        results = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "0"},
            },
            "tools/list": {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]},
        }
        method = message.get("method")
        if method == "tools/call":
            await self._call(message, writer)
        elif method in results:
            body = {"jsonrpc": "2.0", "id": message["id"], "result": results[method]}
            await self._send(writer, json.dumps(body).encode())
        elif "id" in message:
            error = {"code": -32601, "message": "no such method"}
            body = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            await self._send(writer, json.dumps(body).encode())
        else:
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")

    async def _send(self, writer: asyncio.StreamWriter, body: bytes, more: str = "") -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{more}connection: close\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        await writer.drain()

    async def _call(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        result = {"content": [{"type": "text", "text": "well"}]}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        if self.how == "gzip":
            await self._send(writer, gzip.compress(body), "content-encoding: gzip\r\n")
        elif self.how == "deflate":
            bare = zlib.compress(body)[2:-4]
            await self._send(writer, bare, "content-encoding: deflate\r\n")
        elif self.how == "odd":
            await self._send(writer, body, "content-encoding: br\r\n")
        elif self.how == "broken":
            await self._send(writer, b"\x1f\x8b\x08" + body, "content-encoding: gzip\r\n")
        elif self.how == "bomb":
            await self._send(writer, BOMB, "content-encoding: gzip\r\n")
        elif self.how == "events":
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
            writer.write(head)
            while True:
                await self._flood(writer, b": a comment\n" * 1_000)
        else:
            await self._send(writer, b"")
            while True:
                await self._flood(writer, BLOCK)

    async def _flood(self, writer: asyncio.StreamWriter, block: bytes) -> None:
        writer.write(block)
        self.sent += len(block)
        await writer.drain()


@asynccontextmanager
async def web(how: str) -> AsyncIterator[Web]:
    served = Web(how)
    async with await asyncio.start_server(served.serve, "127.0.0.1", 0) as server:
        served.port = server.sockets[0].getsockname()[1]
        yield served


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("endless", "the reply is larger than 16 MiB"),
        ("events", "the reply is larger than 16 MiB"),
        ("bomb", "the reply unpacks to more than 100 times|the reply is larger than 16 MiB"),
        ("odd", "the reply is packed as 'br': it cannot be read"),
        ("broken", "while decompressing"),
    ],
)
async def test_a_reply_over_http_that_cannot_be_kept_fails_its_call(how: str, said: str) -> None:
    async with web(how) as served, opened(served.kit) as tools:
        with pytest.raises(ToolError, match=said):
            await ask(tools["say"])
        # What lies in the sockets' buffers was sent, and not read.
        assert served.sent < 2 * MOST


@pytest.mark.parametrize("how", ["gzip", "deflate"])
async def test_a_packed_reply_is_read(how: str) -> None:
    async with web(how) as served, opened(served.kit) as tools:
        assert await ask(tools["say"]) == "well"
