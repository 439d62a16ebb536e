"""Size limit for the body of an HTTP response; the library itself would read a body of any size."""

import asyncio
import zlib
from collections.abc import AsyncIterator

import httpx2
from typing_extensions import override

from grpo_practice.llm.size_limit import MEBIBYTE, LimitedChunks, OversizeError

MOST = 16 * MEBIBYTE
"""Maximum size of one message or response in bytes; a model reads only a small part of a result."""
_CHUNK = 64 * 1024


class UnreadableError(httpx2.StreamError, httpx2.SSEError):
    """A body that is too large or incorrectly compressed.

    The library turns errors of either base class into an error of the call; any other error would
    end the library's task.
    """

    def __init__(self, message: str) -> None:
        # Not `super()`: the `__init__` methods of the bases take different arguments.
        Exception.__init__(self, message)


class LimitedBody(httpx2.AsyncByteStream):
    """A body that is decompressed in small pieces and counted."""

    def __init__(self, body: httpx2.AsyncByteStream, encoding: str) -> None:
        self._body, self._encoding = body, encoding
        self._came = 0
        """Number of bytes received, before decompression."""

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in LimitedChunks(self._unpacked(), MOST, lambda: self._came, key=None):
                yield chunk
        except (OversizeError, zlib.error) as e:
            raise UnreadableError(str(e)) from e

    async def _unpacked(self) -> AsyncIterator[bytes]:
        if self._encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise UnreadableError(
                f"the reply is encoded as {self._encoding!r}, which is not supported"
            )
        unpack = None
        async for chunk in self._body:
            self._came += len(chunk)
            if self._encoding in ("", "identity"):
                yield chunk
                continue
            if unpack is None:
                # The standard requires a zlib header for deflate, but it is often missing.
                bare = self._encoding == "deflate" and chunk[0] & 0x0F != 8
                # 32: zlib tells gzip and zlib apart by the header. Negative: there is no header.
                unpack = zlib.decompressobj(-zlib.MAX_WBITS if bare else 32 + zlib.MAX_WBITS)
            packed = chunk
            while packed:
                yield unpack.decompress(packed, _CHUNK)
                packed = unpack.unconsumed_tail

    @override
    async def aclose(self) -> None:
        """Close the body and, with it, the connection."""
        await self._body.aclose()


async def limit_body(response: httpx2.Response) -> None:
    """Replace the body of a response with a limited body, as a hook called before it is read."""
    await asyncio.sleep(0)
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    # Remove the header: with it, the client would decompress whole chunks by itself.
    encoding = response.headers.pop("content-encoding", "").strip().lower()
    response.stream = LimitedBody(response.stream, encoding)
