"""Read the rows of a parquet file as plain JSON values; code in the file is never run."""

import math
from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.text import nearest_file
from grpo_practice.data.cells import first_repeated
from grpo_practice.data.columns import ALIASES
from grpo_practice.data.parquet_pages import pages_of
from grpo_practice.data.text_lines import Row, at

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

BATCH = 16
"""Maximum number of rows in memory."""
BATCH_BYTES = 1 << 28
"""Maximum decoded size in bytes of the rows in memory; large dictionaries reduce the batch size."""
MAX_BYTES = 1 << 31
"""Maximum decoded size of all values; a small file can encode any number of identical rows."""
SMALL = 1 << 26
"""Decoded size in bytes that is allowed for even the smallest file."""
MAX_RATIO = 300
"""Maximum ratio of decoded size to file size, for decoded sizes above `SMALL`."""
MAX_PAGE = 1 << 28
"""Maximum decoded size of one page in bytes; a page is decoded as a whole and is usually 1 MiB."""
ROW_BYTES = 256
"""Memory overhead of a row in bytes, in addition to its values."""


def rows(path: Path, *, columns: Sequence[str] | None = None) -> Iterator[Row | DataError]:
    """Yield every row of the file in order, or an error for a row that JSON cannot represent.

    Structs and maps become objects; lists stay lists; decimals, dates and times become text.
    Columns of bytes or of extension types are omitted (`left_out` lists them).

    Args:
        path: The parquet file.
        columns: Names of the columns to read, ignoring missing ones; None reads all.

    Raises:
        DataError: The file is unreadable, or the question or answer column would be omitted.
        ConfigError: pyarrow is not installed.
    """
    with _open(path) as file:
        import pyarrow as pa

        kept = _readable(path, file, columns)
        limit = min(MAX_BYTES, max(SMALL, MAX_RATIO * path.stat().st_size))
        number, size, plain = 0, 0, None
        try:
            for batch in _batches(path, file, kept, limit):
                plain = plain or pa.schema(
                    [field.with_type(_plain_type(field.type)) for field in batch.schema]
                )
                if not plain.equals(batch.schema):
                    batch = batch.cast(plain, safe=False)
                # Measure after the cast: before it, a dictionary value counts only once.
                size += batch.nbytes + batch.num_rows * ROW_BYTES
                if size > limit:
                    raise _too_large(path, limit)
                for found in _batch(batch, kept):
                    number += 1
                    place = f"row {number}"
                    yield Row(place, found) if isinstance(found, dict) else at(path, place, found)
        except (pa.ArrowException, OSError) as e:
            raise _unreadable(path, e) from e


def left_out(path: Path) -> list[str]:
    """List the columns that `rows` omits, each with the reason.

    Raises:
        DataError: The file is unreadable.
        ConfigError: pyarrow is not installed.
    """
    with _open(path) as file:
        why = [(field.name, _why_not(field)) for field in file.schema_arrow]
    return [f"{name!r} ({reason})" for name, reason in why if reason]


def _open(path: Path) -> "ParquetFile":
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError as e:
        hint = "pip install 'grpo-practice[parquet]'"
        raise ConfigError(f"{path}: parquet files need pyarrow", hint=hint) from e
    try:
        path.stat()
    except OSError as e:
        why = f"cannot read {path}: {e.strerror or e}"
        raise DataError(why, hint=nearest_file(path)) from e
    # Reading needs random access, and opening a named pipe would block.
    if not path.is_file():
        raise DataError(f"{path} is not a regular file", hint="save it as a file first")
    try:
        file = ParquetFile(path)
        names = file.schema_arrow.names
    except (pa.ArrowException, OSError, ValueError, KeyError) as e:
        raise _unreadable(path, e) from e
    # A row is a dict, which would silently keep only one of two columns with the same name.
    if (name := first_repeated(names)) is not None:
        raise DataError(f"{path}: the column {name!r} appears twice", hint="rename one")
    return file


def _batches(
    path: Path, file: "ParquetFile", kept: Sequence[str], limit: int
) -> "Iterator[pa.RecordBatch]":
    """Yield the rows in small batches; raise DataError if the file declares more than allowed."""
    claims, names = file.metadata, tuple(f"{name}." for name in kept)
    if claims.num_rows * ROW_BYTES > limit:
        raise _too_large(path, limit, f"has {claims.num_rows:,} rows, which take ")
    with path.open("rb") as raw:
        for n in range(claims.num_row_groups):
            group = claims.row_group(n)
            chunks = [group.column(i) for i in range(group.num_columns)]
            # Compare prefixes, because names may contain dots and paths of nested columns do.
            chunks = [c for c in chunks if f"{c.path_in_schema}.".startswith(names)]
            # Use the page headers: a footer may lie about sizes, and decoders do not check it.
            pages = [page for chunk in chunks for page in pages_of(raw, chunk)]
            dictionaries = sum(page.size for page in pages if page.is_dictionary)
            claimed = sum(chunk.total_uncompressed_size for chunk in chunks)
            if max(claimed, sum(page.size for page in pages)) > limit:
                raise _too_large(path, limit)
            if max((page.size for page in pages), default=0) > MAX_PAGE:
                raise DataError(f"{path} has a page of more than {MAX_PAGE >> 20} MiB")
            # Every row may use the same dictionary value, so a batch may hold that many copies.
            at_once = max(1, min(BATCH, BATCH_BYTES // max(1, dictionaries)))
            yield from file.iter_batches(at_once, row_groups=[n], columns=kept)


def _too_large(path: Path, limit: int, what: str = "unpacks to ") -> DataError:
    if limit == MAX_BYTES:
        return DataError(f"{path} {what}more than {MAX_BYTES >> 30} GiB")
    size = f"{limit / 2**20:.0f} MiB, {max(1, round(limit / path.stat().st_size)):,} times its size"
    return DataError(
        f"{path} {what}more than {size}",
        hint="if its rows really repeat that much, save it as JSON Lines",
    )


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:200]
    return DataError(
        f"{path} is not a readable parquet file: {reason}",
        hint="is it truncated or encrypted?",
    )


def _readable(path: Path, file: "ParquetFile", columns: Sequence[str] | None) -> list[str]:
    """Return the columns to read; raise DataError if the question or the answer is unreadable."""
    kept = []
    needed = {name for role in ("question", "answer") for names in ALIASES[role] for name in names}
    for field in file.schema_arrow:
        if columns is not None and field.name not in columns:
            continue
        reason = _why_not(field)
        if not reason:
            kept.append(field.name)
        elif field.name.strip().casefold() in needed:
            raise DataError(
                f"{path}: the column {field.name!r} is {reason}, not text or numbers",
                hint="write the file again with this column cast to a string",
            )
    return kept


def _why_not(field: "pa.Field") -> str:
    """Return the reason for omitting the column; '' if the column is read."""
    import pyarrow as pa
    from pyarrow import types

    kind = field.type
    # Extension types may run code that a library registered, so do not read even their storage.
    if isinstance(kind, pa.BaseExtensionType) or b"ARROW:extension:name" in (field.metadata or {}):
        return "of an extension type"
    of_bytes = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    if any(is_bytes(kind) for is_bytes in (*of_bytes, types.is_binary_view)):
        return "binary"
    if types.is_union(kind) or types.is_interval(kind) or types.is_run_end_encoded(kind):
        return f"of type {kind}"
    if types.is_struct(kind) and len({inner.name for inner in kind}) < kind.num_fields:
        return "a struct with two fields of the same name"
    if types.is_dictionary(kind):
        return _why_not(pa.field("values", kind.value_type))
    return next(filter(None, (_why_not(kind.field(i)) for i in range(kind.num_fields))), "")


def _batch(batch: "pa.RecordBatch", columns: Sequence[str]) -> Iterator[dict[str, Any] | str]:
    """Yield each row of a batch, or why it is unreadable; a bad row does not affect the others."""
    try:
        # Only maps need this option; without it, pyarrow takes a faster path.
        maps = "strict" if "map<" in str(batch.schema.types) else None
        found = batch.to_pylist(maps_as_pydicts=maps)
    except (ValueError, OverflowError, KeyError):  # convert row by row to find the bad ones
        found = [_alone(batch.slice(i, 1)) for i in range(batch.num_rows)]
    for fields in found:
        try:
            if isinstance(fields, str):
                yield fields
            else:
                yield {name: _plain(name, fields[name]) for name in columns}
        except ValueError as e:
            yield str(e)


def _alone(row: "pa.RecordBatch") -> dict[str, Any] | str:
    fields = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            fields[name] = column[0].as_py(maps_as_pydicts="strict")
        except KeyError:
            return f"{name!r}: a map contains the same key twice"
        except (ValueError, OverflowError) as e:  # invalid UTF-8, or a year after 9999
            return f"a value cannot be read: {e}"
    return fields


def _plain_type(kind: "pa.DataType") -> "pa.DataType":
    """Return the type without dictionary encoding, and with nanoseconds reduced to microseconds.

    Python objects with nanosecond precision would require pandas.
    """
    import pyarrow as pa
    from pyarrow import types

    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    if types.is_fixed_size_list(kind):
        inner = kind.value_field.with_type(_plain_type(kind.value_type))
        return pa.list_(inner, kind.list_size)
    if types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type), kind.keys_sorted)
    return kind


def _plain(name: str, value: Any) -> Any:
    """Convert a value to JSON types; raise a ValueError that names the column if it has none."""
    match value:
        case None | str() | bool() | int():
            return value
        case dict():
            return {str(_plain(name, k)): _plain(name, v) for k, v in value.items()}
        case list():
            return [_plain(name, v) for v in value]
        case Decimal() | timedelta():
            return str(value)
        case date() | time():
            return value.isoformat()
        case _:  # pyarrow returns half floats as numpy values, not as Python floats
            number = float(value)
            if not math.isfinite(number):
                raise ValueError(f"{name!r}: {value} is not a JSON number")
            return number
