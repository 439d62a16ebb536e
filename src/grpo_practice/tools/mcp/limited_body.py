"""The body of an HTTP answer, with a limit: the library reads any until it is whole."""

import asyncio
import zlib
from collections.abc import AsyncIterator

import httpx2
from typing_extensions import override

from grpo_practice.llm.size_limit import MEBIBYTE, LimitedChunks, OversizeError

MOST = 16 * MEBIBYTE
"""Bytes of one message or answer; a model reads far less of a result."""
_CHUNK = 64 * 1024


class UnreadableError(httpx2.StreamError, httpx2.SSEError):
    """A body that is too large or packed wrongly.

    Both bases: those are what the library turns into the error of the call, and not of a task.
    """

    def __init__(self, message: str) -> None:
        # Not by `super()`: the `__init__`s of the bases have different forms.
        Exception.__init__(self, message)


class LimitedBody(httpx2.AsyncByteStream):
    """A body, unpacked in small pieces and counted."""

    def __init__(self, body: httpx2.AsyncByteStream, encoding: str) -> None:
        self._body, self._encoding = body, encoding
        self._came = 0
        """Bytes that came, before they were unpacked."""

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in LimitedChunks(self._unpacked(), MOST, lambda: self._came, key=None):
                yield chunk
        except (OversizeError, zlib.error) as e:
            raise UnreadableError(str(e)) from e

    async def _unpacked(self) -> AsyncIterator[bytes]:
        if self._encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise UnreadableError(f"the reply is packed as {self._encoding!r}: it cannot be read")
        unpack = None
        async for chunk in self._body:
            self._came += len(chunk)
            if self._encoding in ("", "identity"):
                yield chunk
                continue
            if unpack is None:
                # Deflate has a header by the standard, and often none.
                bare = self._encoding == "deflate" and chunk[0] & 0x0F != 8
                unpack = zlib.decompressobj(-zlib.MAX_WBITS if bare else 32 + zlib.MAX_WBITS)
            packed = chunk
            while packed:
                yield unpack.decompress(packed, _CHUNK)
                packed = unpack.unconsumed_tail

    @override
    async def aclose(self) -> None:
        """Close the connection."""
        await self._body.aclose()


async def limit_body(response: httpx2.Response) -> None:
    """Replace a body by a limited one; a hook that the client calls before it reads."""
    await asyncio.sleep(0)
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    # Taken out: for this header the client would unpack the body itself, a whole chunk at a time.
    encoding = response.headers.pop("content-encoding", "").strip().lower()
    response.stream = LimitedBody(response.stream, encoding)
