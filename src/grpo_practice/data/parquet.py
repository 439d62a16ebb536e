"""Rows of a parquet file as plain JSON values; nothing in the file is ever run."""

import math
from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.data.columns import ALIASES
from grpo_practice.data.formats import Row
from grpo_practice.data.text_lines import at
from grpo_practice.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

BATCH = 16
"""Rows in memory at once."""
MAX_BYTES = 1 << 31
"""Limit of all decoded values: a small file may claim any number of equal rows."""


def rows(path: Path, *, columns: Sequence[str] | None = None) -> Iterator[Row | DataError]:
    """Yield every row of the file, in order, or the error of a row that JSON cannot hold.

    Structs and maps become objects, lists lists, and decimals, dates and times their text. Columns
    of bytes, or of a type that pyarrow does not define, are left out (`left_out` names them).

    `columns` are read alone, where the file has them; None reads all.

    Raises:
        DataError: The file cannot be read; or the question or the answer would be left out.
        ConfigError: pyarrow is not installed.
    """
    with _open(path) as file:
        import pyarrow as pa

        kept = _readable(path, file, columns)
        number, size, coarser = 0, 0, None
        try:
            for batch in file.iter_batches(batch_size=BATCH, columns=kept):
                size += batch.nbytes
                if size > MAX_BYTES:
                    raise DataError(f"{path}: more than {MAX_BYTES >> 30} GiB of values")
                # Python has no finer times: pyarrow would ask for pandas.
                coarser = coarser or pa.schema(
                    [field.with_type(_microseconds(field.type)) for field in batch.schema]
                )
                if not coarser.equals(batch.schema):
                    batch = batch.cast(coarser, safe=False)
                for found in _batch(batch, kept):
                    number += 1
                    place = f"row {number}"
                    yield Row(place, found) if isinstance(found, dict) else at(path, place, found)
        except (pa.ArrowException, OSError) as e:
            raise _unreadable(path, e) from e


def left_out(path: Path) -> list[str]:
    """List the columns that `rows` leaves out, each with why.

    Raises:
        DataError: The file cannot be read.
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
        raise DataError(f"cannot read {path}: {e.strerror or e}") from e
    if not path.is_file():
        raise DataError(f"{path} is not a regular file", hint="save it as a file first")
    try:
        file = ParquetFile(path)
        names = file.schema_arrow.names
    except (pa.ArrowException, OSError, ValueError, KeyError) as e:
        raise _unreadable(path, e) from e
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path}: the column {name!r} is there twice", hint="rename one")
    return file


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:200]
    return DataError(
        f"{path}: not a parquet file that can be read: {reason}",
        hint="was it cut off, or encrypted?",
    )


def _readable(path: Path, file: "ParquetFile", columns: Sequence[str] | None) -> list[str]:
    """Return the columns to read; raise where the question or the answer is not among them."""
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
    """Return why the column is not read; '' when it is."""
    import pyarrow as pa
    from pyarrow import types

    kind = field.type
    # An extension's reader is code that its library registers: not even its storage is read.
    if isinstance(kind, pa.BaseExtensionType) or b"ARROW:extension:name" in (field.metadata or {}):
        return "of an extension type"
    of_bytes = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    if any(is_bytes(kind) for is_bytes in (*of_bytes, types.is_binary_view)):
        return "binary"
    if types.is_union(kind) or types.is_interval(kind) or types.is_run_end_encoded(kind):
        return f"of type {kind}"
    if types.is_struct(kind) and len({inner.name for inner in kind}) < kind.num_fields:
        return "a struct with one name twice"
    if types.is_dictionary(kind):
        return _why_not(pa.field("values", kind.value_type))
    return next(filter(None, (_why_not(kind.field(i)) for i in range(kind.num_fields))), "")


def _batch(batch: "pa.RecordBatch", columns: Sequence[str]) -> Iterator[dict[str, Any] | str]:
    """Yield each row of a batch, or why it cannot be read; one bad row spoils no other."""
    try:
        # Without this option pyarrow has a faster path, and no column needs it but maps.
        maps = "strict" if "map<" in str(batch.schema.types) else None
        found = batch.to_pylist(maps_as_pydicts=maps)
    except (ValueError, OverflowError, KeyError):  # which row it is, only single rows tell
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
            return f"{name!r}: one key twice in a map"
        except (ValueError, OverflowError) as e:  # bytes that are no text, a year beyond 9999
            return f"a value cannot be read: {e}"
    return fields


def _microseconds(kind: "pa.DataType") -> "pa.DataType":
    import pyarrow as pa
    from pyarrow import types

    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_struct(kind):
        return pa.struct([field.with_type(_microseconds(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_microseconds(kind.value_type)))
    return kind


def _plain(name: str, value: Any) -> Any:
    """Return the value as JSON has it; raise a ValueError that names the column if it cannot."""
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
        case _:  # a half float is numpy's, and no Python float
            number = float(value)
            if not math.isfinite(number):
                raise ValueError(f"{name!r}: {value} is not a number in JSON")
            return number
