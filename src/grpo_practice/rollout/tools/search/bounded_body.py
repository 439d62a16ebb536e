"""A size limit for the body of a response, counted after decompression."""

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from grpo_practice.llm.connections import FewInterim
from grpo_practice.llm.http import certificates
from grpo_practice.rollout.tools import ToolError

_CHUNK = 16 * 1024


@asynccontextmanager
async def unread_bodies(**connector: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session without cookies or limits that leaves decompression to `body_of`.

    Proxies are passed with each request; the session ignores the environment.
    """
    async with aiohttp.ClientSession(
        # No limit here: a wait for a connection would count as the server's time.
        connector=aiohttp.TCPConnector(ssl=certificates(), limit=0, **connector),
        response_class=FewInterim,
        # Trusting the environment would also send logins from ~/.netrc to any host.
        trust_env=False,
        # `body_of` decompresses and stops at its limit: aiohttp would expand a whole bomb.
        auto_decompress=False,
        # No cookies: rollouts share the session, but must not share a site's state.
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        yield session


async def body_of(response: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """Return the first `most` bytes of the body, and whether the body is complete.

    The body is decompressed as it arrives and no further than needed, so a decompression bomb is
    never expanded.

    Raises:
        ToolError: The encoding is not supported, or the body is damaged.
    """
    unpack = _Unpacker(response.headers.get("content-encoding", ""))
    out, wire = bytearray(), 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        wire += len(chunk)
        # Read one byte more than needed, which shows whether the body is longer.
        out += unpack(chunk, most + 1 - len(out))
        # Count both: a large compressed body may decompress to nothing.
        if len(out) > most or wire > most:
            return bytes(out[:most]), False
    return bytes(out), unpack.whole


class _Unpacker:
    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        self._zlib = None
        if self._encoding in ("gzip", "x-gzip"):
            # With 16, zlib requires a gzip header.
            self._zlib = zlib.decompressobj(16 + zlib.MAX_WBITS)
        elif self._encoding not in ("", "identity", "deflate"):
            raise ToolError("the response is compressed in a way that is not supported here")

    @property
    def whole(self) -> bool:
        """False if the end of the body is missing."""
        return self._zlib is None or self._zlib.eof

    def __call__(self, chunk: bytes, most: int) -> bytes:
        if self._encoding in ("", "identity"):
            return chunk
        if (
            self._zlib is None
        ):  # deflate: the standard requires a zlib header, which is often missing
            bare = chunk[0] & 0x0F != 8
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS)
        try:
            return self._zlib.decompress(chunk, most)
        except zlib.error as e:
            raise ToolError("the response is damaged: it cannot be decompressed") from e
