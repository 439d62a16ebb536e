"""A server that sends the bytes it is given, whatever they are."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass
class Raw:
    port: int = 0
    asked: int = 0
    sent: int = 0
    """Bytes, after the first."""


@asynccontextmanager
async def raw(
    first: bytes,
    endless: bytes = b"",
    every_s: float = 0.0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Raw]:
    """It answers each connection with `first`, then `endless` until nobody listens."""
    it = Raw()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            it.asked += 1
            writer.write(first)
            while endless and it.sent < 64 * 1024 * 1024:
                writer.write(endless)
                await writer.drain()
                it.sent += len(endless)
                await asyncio.sleep(every_s)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        it.port = server.sockets[0].getsockname()[1]
        yield it
