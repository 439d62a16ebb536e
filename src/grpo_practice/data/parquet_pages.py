"""The pages of a parquet column by their own headers: decoders go by these, not by the footer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData

MAX_PAGES = 100_000
"""Limit for one column in one row group; a page usually has 1 MiB."""
_BOOLS, _NUMBERS, _INT32, _DOUBLE, _BINARY, _STRUCT = (1, 2), (3, 4, 5, 6), 5, 7, 8, 12
"""Types of Thrift's compact protocol; lists, sets and maps are in no page header."""
_MAX_DEPTH = 4
_DICTIONARY_PAGE = 2


@dataclass(frozen=True, slots=True)
class Page:
    """A page as its header has it."""

    is_dictionary: bool
    size: int
    """Bytes after unpacking."""


def pages_of(raw: BinaryIO, chunk: "ColumnChunkMetaData") -> Iterator[Page]:
    """Yield the pages of a column in a row group.

    Raises:
        OSError: A header is not in the form that writers give it, or there are too many.
    """
    first = chunk.dictionary_page_offset
    # As the decoder finds it: old writers give 0 for a dictionary that is not there.
    begin = min(first or chunk.data_page_offset, chunk.data_page_offset)
    # The decoder reads up to 100 bytes more of files by old writers, where the sum is too small.
    position, end = begin, begin + chunk.total_compressed_size
    for _ in range(MAX_PAGES):
        if position >= end:
            return
        raw.seek(position)
        header = _struct(raw, 0)
        kind, size, packed = (header.get(field, -1) for field in (1, 2, 3))
        # A decoder cuts a number of more bits off, and would go by another one than we.
        if kind < 0 or not (0 <= size < 1 << 31 and 0 <= packed < 1 << 31):
            raise OSError("a page header in an unusual form")
        yield Page(kind == _DICTIONARY_PAGE, size)
        position = raw.tell() + packed
    raise OSError(f"more than {MAX_PAGES:,} pages in one column of a row group")


def _struct(raw: BinaryIO, depth: int) -> dict[int, int]:
    """Read a struct, and return its 32-bit numbers by field."""
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
        elif kind not in _BOOLS:  # a field's kind holds its value
            raise OSError("a page header in an unusual form")
    return found


def _varint(raw: BinaryIO) -> int:
    number = 0
    for shift in range(0, 70, 7):
        byte = _byte(raw)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
    raise OSError("a page header in an unusual form")


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _byte(raw: BinaryIO) -> int:
    byte = raw.read(1)
    if not byte:
        raise OSError("a page header is cut off")
    return byte[0]
