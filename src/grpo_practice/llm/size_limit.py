"""Limits the size of a reply: the rest of a larger one is not read."""

from collections.abc import AsyncIterator, Callable
from typing import Self

MEBIBYTE = 2**20
DEFAULT_MIB = 64
"""Maximum size of a reply, unpacked, unless a config sets another limit."""
MAX_RATIO = 100
"""Maximum unpacked bytes per received byte, above `PACKED_FREE`; text shrinks to about a tenth."""
PACKED_FREE = 8 * MEBIBYTE
"""Unpacked bytes up to which any ratio is accepted, since a small reply may repeat one line
often.
"""


ENCODINGS = "gzip, deflate"
"""Encodings that are announced as readable to servers of pages, searches and tools."""


class OversizeError(ValueError):
    """A body exceeds the limit, or its compression ratio is suspicious."""


class LimitedChunks:
    """The chunks of a body, counted as they arrive, after they were unpacked.

    Args:
        chunks: The unpacked body, in pieces of bounded size.
        most: Limit in bytes.
        wire: Function that returns the number of bytes received so far, before unpacking.
        key: Config key that sets the limit; None if no key does.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        most: int,
        wire: Callable[[], int] | None = None,
        *,
        key: str | None = "model_provider.max_reply_mib",
    ) -> None:
        self._chunks, self._most, self._wire, self._key = chunks, most, wire, key
        self._size = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next chunk, or raise OversizeError."""
        chunk = await anext(self._chunks)
        self._size += len(chunk)
        if self._size > self._most:
            remedy = f"; to read it, raise {self._key}" if self._key else ""
            raise OversizeError(f"the reply is larger than {self._most / MEBIBYTE:g} MiB{remedy}")
        # Check the ratio only above this size: a short reply that repeats a sentence is no
        # attack.
        if self._size > PACKED_FREE and self._wire is not None:
            came = self._wire()
            if self._size > MAX_RATIO * came:
                raise OversizeError(
                    f"the reply unpacks to more than {MAX_RATIO} times the {came:,} bytes received"
                )
        return chunk
