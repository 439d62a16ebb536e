"""The size of a reply: where it is too large, the rest is not read."""

from collections.abc import AsyncIterator, Callable
from typing import Self

MEBIBYTE = 2**20
DEFAULT_MIB = 64
"""Limit of a reply, unpacked, unless a config says otherwise."""
MAX_RATIO = 100
"""Unpacked bytes for each byte that came, above `PACKED_FREE`: text packs to a tenth."""
PACKED_FREE = 8 * MEBIBYTE
"""Unpacked bytes up to which any ratio is fine: a small reply may repeat one line for ever."""


ENCODINGS = "gzip, deflate"
"""Encodings that servers of pages, searches and tools are told can be read."""


class OversizeError(ValueError):
    """A body is larger than the limit, or was packed so that it would be."""


class LimitedChunks:
    """The chunks of a body, counted as they come, after they were unpacked.

    Args:
        chunks: The unpacked body, in pieces of bounded size.
        most: Limit in bytes.
        wire: Function that gives the bytes that came so far, before they were unpacked.
        key: Key of the config that sets the limit; None where none does.
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
        # Only where it matters: a reply of one sentence, repeated, is no attack.
        if self._size > PACKED_FREE and self._wire is not None:
            came = self._wire()
            if self._size > MAX_RATIO * came:
                raise OversizeError(
                    f"the reply unpacks to more than {MAX_RATIO} times the {came:,} bytes that came"
                )
        return chunk
