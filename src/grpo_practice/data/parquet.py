"""A parquet file's rows, as plain values; nothing in the file is ever run."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
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
"""Rows that are in memory at once."""
MAX_BYTES = 1 << 31
"""Of all values, decoded: a small file may claim any number of equal rows."""

Plain = Callable[[Any], Any]
"""A value as pyarrow gives it, as JSON has it."""


def rows(path: Path, *, columns: Sequence[str] | None = None) -> Iterator[Row | DataError]:
    """Every row of the file, in order; a row with a value that JSON has not is its error.

    Structs and maps become objects, lists lists, and decimals, dates and times their text. Columns
    of bytes, or of a type that pyarrow does not define, are left out (`left_out` names them).

    Args:
        path: A parquet file.
        columns: Read these alone, where they are there; None reads all.

    Raises:
        DataError: The file cannot be read; or the question or the answer would be left out.
        ConfigError: pyarrow is not installed.
    """
    with _opened(path) as file:
        import pyarrow as pa

        kept = _kept(path, file, columns)
        number, size = 0, 0
        try:
            for batch in file.iter_batches(batch_size=BATCH, columns=list(kept)):
                size += batch.nbytes
                if size > MAX_BYTES:
                    raise DataError(f"{path}: more than {MAX_BYTES >> 30} GiB of values")
                yield from _batch(path, number, batch, kept)
                number += batch.num_rows
        except (pa.ArrowException, OSError) as e:
            raise _unreadable(path, e) from e


def left_out(path: Path) -> list[str]:
    """The columns that `rows` leaves out, each with why.

    Raises:
        DataError: The file cannot be read.
        ConfigError: pyarrow is not installed.
    """
    with _opened(path) as file:
        why = [(field.name, _unread(field)) for field in file.schema_arrow]
    return [f"{name!r} ({reason})" for name, reason in why if reason]


def _opened(path: Path) -> "ParquetFile":
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
    said = " ".join(str(error).split())[:200]
    return DataError(
        f"{path}: not a parquet file that can be read: {said}", hint="was it cut off, or encrypted?"
    )


def _kept(path: Path, file: "ParquetFile", columns: Sequence[str] | None) -> dict[str, Plain]:
    """What to do with each column that is read."""
    kept: dict[str, Plain] = {}
    needed = {name for role in ("question", "answer") for names in ALIASES[role] for name in names}
    for field in file.schema_arrow:
        if columns is not None and field.name not in columns:
            continue
        reason = _unread(field)
        if not reason:
            kept[field.name] = _plain(field.type)
        elif field.name.strip().casefold() in needed:
            raise DataError(
                f"{path}: the column {field.name!r} is {reason}, not text or numbers",
                hint="write the file again with this column cast to a string",
            )
    return kept


def _unread(field: "pa.Field") -> str:
    """Why the column is not read; '' when it is."""
    import pyarrow as pa
    from pyarrow import types

    kind = field.type
    if isinstance(kind, pa.BaseExtensionType) or b"ARROW:extension:name" in (field.metadata or {}):
        return "of an extension type"
    if _is_bytes(kind):
        return "binary"
    if types.is_union(kind) or types.is_interval(kind) or types.is_run_end_encoded(kind):
        return f"of type {kind}"
    if types.is_struct(kind):
        names = [inner.name for inner in kind]
        if len(set(names)) < len(names):
            return "a struct with one name twice"
    return next(filter(None, map(_unread, _inner(kind))), "")


def _is_bytes(kind: "pa.DataType") -> bool:
    from pyarrow import types

    tests = (
        types.is_binary,
        types.is_large_binary,
        types.is_fixed_size_binary,
        types.is_binary_view,
    )
    return any(test(kind) for test in tests)


def _inner(kind: "pa.DataType") -> "list[pa.Field]":
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(kind):
        return [pa.field("values", kind.value_type)]
    return [kind.field(i) for i in range(kind.num_fields)]


def _batch(
    path: Path, before: int, batch: "pa.RecordBatch", kept: dict[str, Plain]
) -> Iterator[Row | DataError]:
    """The rows of a batch; one that cannot be decoded spoils no other."""
    try:
        found: Iterator[dict[str, Any] | Exception] = iter(_precise(batch).to_pylist())
    except (ValueError, OverflowError):  # bytes that are no text, a year that Python has not
        found = map(_alone, (batch.slice(i, 1) for i in range(batch.num_rows)))
    for number, fields in enumerate(islice(found, batch.num_rows), before + 1):
        place = f"row {number}"
        if isinstance(fields, Exception):
            yield at(path, place, f"a value cannot be read: {fields}")
            continue
        try:
            yield Row(place, {name: _value(name, fields[name], kept[name]) for name in kept})
        except DataError as e:
            yield at(path, place, str(e))


def _alone(batch: "pa.RecordBatch") -> dict[str, Any] | Exception:
    try:
        fields: dict[str, Any] = _precise(batch).to_pylist()[0]
    except (ValueError, OverflowError) as e:
        return e
    return fields


def _value(name: str, value: Any, plain: Plain) -> Any:
    try:
        return plain(value)
    except ValueError as e:
        raise DataError(f"{name!r}: {e}") from e


def _precise(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """The batch with times cut to microseconds, the finest that Python has."""
    import pyarrow as pa

    wanted = [field.with_type(_microseconds(field.type)) for field in batch.schema]
    if all(field.type == was.type for field, was in zip(wanted, batch.schema, strict=True)):
        return batch
    arrays = [
        array.cast(field.type, safe=False)
        for array, field in zip(batch.columns, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(wanted))


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


def _plain(kind: "pa.DataType") -> Plain:
    """How a column's values become plain; made once, as there may be millions of them."""
    from pyarrow import types

    plain: Plain = _same
    if types.is_floating(kind):
        plain = _finite
    elif types.is_decimal(kind) or types.is_duration(kind):
        plain = _text
    elif types.is_temporal(kind):
        plain = _iso
    elif types.is_dictionary(kind):
        plain = _plain(kind.value_type)
    elif types.is_struct(kind):
        plain = _struct({field.name: _plain(field.type) for field in kind})
    elif types.is_map(kind):
        plain = _map(_plain(kind.key_type), _plain(kind.item_type))
    elif kind.num_fields:
        plain = _list(_plain(kind.value_type))
    return plain


def _same(value: Any) -> Any:
    return value


def _finite(value: Any) -> Any:
    if value is None or math.isfinite(value):
        return value if value is None else float(value)
    raise ValueError(f"{value} is not a number in JSON")


def _text(value: Any) -> Any:
    return None if value is None else str(value)


def _iso(value: Any) -> Any:
    return None if value is None else value.isoformat()


def _struct(fields: dict[str, Plain]) -> Plain:
    if all(plain is _same for plain in fields.values()):
        return _same

    def plain(value: Any) -> Any:
        if value is None:
            return None
        return {name: inner(value[name]) for name, inner in fields.items()}

    return plain


def _list(inner: Plain) -> Plain:
    if inner is _same:
        return _same
    return lambda value: None if value is None else [inner(v) for v in value]


def _map(key: Plain, item: Plain) -> Plain:
    def plain(value: Any) -> Any:
        if value is None:
            return None
        found = {str(key(k)): item(v) for k, v in value}
        if len(found) < len(value):
            raise ValueError("one key twice in a map")
        return found

    return plain
