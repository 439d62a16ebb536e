"""Page headers of a parquet column. Decoders rely on these headers, not on the footer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData

MAX_PAGES = 100_000
"""Maximum number of pages in one column of one row group; a page is usually 1 MiB."""
_BOOLS, _NUMBERS, _INT32, _DOUBLE, _BINARY, _STRUCT = (1, 2), (3, 4, 5, 6), 5, 7, 8, 12
"""Type codes of Thrift's compact protocol; page headers contain no lists, sets or maps."""
_MAX_DEPTH = 4
_DICTIONARY_PAGE = 2


@dataclass(frozen=True, slots=True)
class ColumnPage:
    """A page, as described by its header."""

    is_dictionary: bool
    size: int
    """Uncompressed size in bytes."""


def pages_of(raw: BinaryIO, chunk: "ColumnChunkMetaData") -> Iterator[ColumnPage]:
    """Yield the pages of a column in one row group.

    Raises:
        OSError: A header has an unexpected format, or there are too many pages.
    """
    first = chunk.dictionary_page_offset
    # Same rule as the decoder: old writers store 0 if the column has no dictionary.
    begin = min(first or chunk.data_page_offset, chunk.data_page_offset)
    # Files of old writers understate the length, and decoders read up to 100 bytes more of them.
    position, end = begin, begin + chunk.total_compressed_size
    for _ in range(MAX_PAGES):
        if position >= end:
            return
        raw.seek(position)
        header = _struct(raw, 0)
        kind, size, packed = (header.get(field, -1) for field in (1, 2, 3))
        # Decoders truncate wider numbers to 32 bits, so they would see another size than we do.
        if kind < 0 or not (0 <= size < 1 << 31 and 0 <= packed < 1 << 31):
            raise OSError("a page header has an unexpected format")
        yield ColumnPage(kind == _DICTIONARY_PAGE, size)
        position = raw.tell() + packed
    raise OSError(f"more than {MAX_PAGES:,} pages in one column of a row group")


def _struct(raw: BinaryIO, depth: int) -> dict[int, int]:
    """Read a Thrift struct; return its 32-bit integers by field number."""
    found, field = dict[int, int](), 0
    while head := _byte(raw):
        kind, step = head & 0x0F, head >> 4
        field = field + step if step else _zigzag(_varint(raw))
        if kind == _INT32:
            found[field] = _zigzag(_varint(raw))
        elif kind in _NUMBERS:
            _ = _byte(raw) if kind == 3 else _varint(raw)
        elif kind == _DOUBLE:
            raw.seek(8, 1)
        elif kind == _BINARY:
            raw.seek(_varint(raw), 1)
        elif kind == _STRUCT and depth < _MAX_DEPTH:
            _struct(raw, depth + 1)
        elif kind not in _BOOLS:  # a Boolean has no payload: its type code is its value
            raise OSError("a page header has an unexpected format")
    return found


def _varint(raw: BinaryIO) -> int:
    number = 0
    for shift in range(0, 70, 7):
        byte = _byte(raw)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
    raise OSError("a page header has an unexpected format")


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _byte(raw: BinaryIO) -> int:
    byte = raw.read(1)
    if not byte:
        raise OSError("a page header is cut off")
    return byte[0]
