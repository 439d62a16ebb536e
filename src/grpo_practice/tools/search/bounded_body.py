"""The body of an answer: at most so much of it, counted after decompression."""

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from grpo_practice.tools import ToolError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

_CHUNK = 16 * 1024


@asynccontextmanager
async def unread_bodies(**connector: Any) -> AsyncIterator["ClientSession"]:
    """Yield connections whose answers are left packed, for `body_of`; without cookies or limits.

    A proxy is named with each request: what the environment says is not looked at.
    """
    import aiohttp

    from grpo_practice.llm.connections import FewInterim
    from grpo_practice.llm.http import certificates

    async with aiohttp.ClientSession(
        # No limit here: a wait for a connection would count as the server's time.
        connector=aiohttp.TCPConnector(ssl=certificates(), limit=0, **connector),
        response_class=FewInterim,
        # With the environment's proxies would come the logins of ~/.netrc, for any host.
        trust_env=False,
        # Unpacked by `body_of`, which stops at its limit: aiohttp would unpack a bomb whole.
        auto_decompress=False,
        # No cookies: rollouts share the session, and must not share what sites remember.
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        yield session


async def body_of(response: "ClientResponse", most: int) -> tuple[bytes, bool]:
    """Return the first `most` bytes of the body, and whether that is all of it.

    The body is unpacked as it comes, never further than that: what would unpack to gigabytes is
    left where it is.

    Raises:
        ToolError: It is packed in a way that is not read here, or is broken.
    """
    unpack = _Unpacker(response.headers.get("content-encoding", ""))
    out, wire = bytearray(), 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        wire += len(chunk)
        # Never more than is left, plus one byte to see that there is more.
        out += unpack(chunk, most + 1 - len(out))
        # Both are counted: a packed body may be large and unpack to nothing.
        if len(out) > most or wire > most:
            return bytes(out[:most]), False
    return bytes(out), unpack.whole


class _Unpacker:
    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        self._zlib = None
        if self._encoding in ("gzip", "x-gzip"):
            self._zlib = zlib.decompressobj(16 + zlib.MAX_WBITS)
        elif self._encoding not in ("", "identity", "deflate"):
            raise ToolError("what came is packed in a way that is not read here")

    @property
    def whole(self) -> bool:
        """False where something is missing at the end."""
        return self._zlib is None or self._zlib.eof

    def __call__(self, chunk: bytes, most: int) -> bytes:
        if self._encoding in ("", "identity"):
            return chunk
        if self._zlib is None:  # deflate: by the standard with a header, often without
            bare = chunk[0] & 0x0F != 8
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS)
        try:
            return self._zlib.decompress(chunk, most)
        except zlib.error as e:
            raise ToolError("what came is broken: it cannot be unpacked") from e
