"""A file's bytes, as rows with line numbers."""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_practice.errors import ConfigError, DataError

DELIMITERS = (",", ";", "\t")
UTF8_MARK = b"\xef\xbb\xbf"
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
RUNS_CODE = frozenset({".pkl", ".pickle", ".pt", ".pth", ".py"})
SPACE = " \t\r\n"
MAX_LINE = 1 << 28
"""Bytes of a line; a longer one is no row of text."""
CUT = ("Expecting", "Unterminated", "Invalid \\")
"""How a decoder's messages begin that could mean the rest is missing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row as the file has it."""

    place: str
    """The line it begins on, from 1; in a JSON list, which may be all one line, `1 (row 7)`."""
    fields: dict[str, Any]


def rows(path: Path, *, delimiter: str | None = None) -> Iterator[Row | DataError]:
    """Every row of the file, in order; a broken row is its error, and the rows after it go on.

    What spoils more than one row is raised: a missing file, an encoding, a CSV header or a quote
    that is never closed, the syntax of a `.json`.

    Args:
        path: Its suffix says the format: .jsonl or .ndjson, .json (one list), .csv.
        delimiter: Of a CSV file; None takes the one its first line has most of.

    Raises:
        DataError: The file cannot be read as its suffix says.
        ConfigError: `delimiter` is none, or the file is not CSV.
    """
    suffix = path.suffix.lower()
    if delimiter is not None and suffix != ".csv":
        raise ConfigError(f"{path}: a delimiter is for .csv files only")
    match suffix:
        case ".jsonl" | ".ndjson":
            return _jsonl(path)
        case ".json":
            return _json(path)
        case ".csv":
            return _csv(path, delimiter)
        case _:
            why = "never read: loading it may run code" if suffix in RUNS_CODE else "not read here"
            raise DataError(
                f"{path}: {suffix or 'a file without a suffix'} is {why}",
                hint="save it as .jsonl (one object a line), .json (one list of objects) or .csv",
            )


def at(path: Path, place: object, message: str, *, hint: str | None = None) -> DataError:
    """An error that says where: `file:7: message`."""
    return DataError(f"{path}:{place}: {message}", hint=hint)


def _lines(path: Path) -> Iterator[str]:
    """The file's lines with their ends, without the byte order mark."""
    try:
        if path.exists() and not path.is_file():  # a pipe may never end, or never begin
            raise DataError(f"{path} is not a regular file", hint="save it as a file first")
        with path.open("rb") as file:
            for number, raw in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1):
                if len(raw) > MAX_LINE:
                    raise at(path, number, f"the line is longer than {MAX_LINE >> 20} MiB")
                yield _text(path, number, raw)
    except OSError as e:
        raise DataError(f"cannot read {path}: {e.strerror or e}") from e


def _text(path: Path, number: int, raw: bytes) -> str:
    # Raised, never skipped: skipping would drop just the rows with an accent.
    if number == 1 and raw.startswith(WIDE_MARKS):
        raise at(path, 1, "the file is UTF-16, not UTF-8", hint=_convert(path, "UTF-16"))
    if b"\0" in raw:
        raise at(path, number, "a NUL byte: the file is UTF-16 without a mark, or is no text")
    try:
        return (raw.removeprefix(UTF8_MARK) if number == 1 else raw).decode()
    except UnicodeDecodeError as e:
        byte = e.object[e.start]
        message = f"byte 0x{byte:02x} is not UTF-8; the file may be Latin-1"
        raise at(path, number, message, hint=_convert(path, "LATIN1")) from e


def _convert(path: Path, encoding: str) -> str:
    return f"iconv -f {encoding} -t UTF-8 {path.name} > utf8-{path.name}"


_IS_IT_CUT = " (the file's last line: is it cut off?)"


def _said(message: str) -> str:
    """The decoder's message without the words that a place would follow."""
    return message.removesuffix(" starting at").removesuffix(" at")


def _jsonl(path: Path) -> Iterator[Row | DataError]:
    for number, line in enumerate(_lines(path), 1):
        start = _skip(line, 0)
        if start == len(line):
            continue
        try:
            value, end = _value(line, start)
            end = _skip(line, end)
            if end < len(line):
                raise json.JSONDecodeError("Extra data", line, end)
        except json.JSONDecodeError as e:
            cut = "" if line.endswith("\n") or not e.msg.startswith(CUT) else _IS_IT_CUT
            yield at(path, number, f"not valid JSON: {_said(e.msg)} at column {e.pos + 1}{cut}")
        else:
            yield _row(path, str(number), value)


def _json(path: Path) -> Iterator[Row | DataError]:
    text = "".join(_lines(path))
    line, before = 1, 0
    try:
        for number, (place, value) in enumerate(_elements(text), 1):
            line, before = line + text.count("\n", before, place), place
            yield _row(path, f"{line} (row {number})", value)
    except json.JSONDecodeError as e:
        raise at(
            path,
            e.lineno,
            f"not one JSON list: {_said(e.msg)} at column {e.colno}",
            hint="a .json file holds one list of objects; a file of one object a line is .jsonl",
        ) from e


def _elements(text: str) -> Iterator[tuple[int, Any]]:
    """Each element of the list, and where in the text it begins."""
    place = _after(text, 0, "[")
    while not text.startswith("]", place):
        value, end = _value(text, place)
        yield place, value
        place = _skip(text, end)
        if not text.startswith("]", place):
            place = _after(text, place, ",")
            if text.startswith("]", place):
                raise json.JSONDecodeError("a comma before ']'", text, place)
    place = _skip(text, place + 1)
    if place < len(text):
        raise json.JSONDecodeError("Extra data", text, place)


def _after(text: str, place: int, token: str) -> int:
    place = _skip(text, place)
    if not text.startswith(token, place):
        raise json.JSONDecodeError(f"expected {token!r}", text, place)
    return _skip(text, place + 1)


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in SPACE:
        place += 1
    return place


def _value(text: str, place: int) -> tuple[Any, int]:
    """The JSON value that begins there, and where it ends; every problem is a JSONDecodeError."""
    try:
        return _DECODER.raw_decode(text, place)
    except json.JSONDecodeError:
        raise
    except RecursionError as e:
        raise json.JSONDecodeError("nested too deeply", text, place) from e
    except ValueError as e:
        raise json.JSONDecodeError(str(e), text, place) from e


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large a number")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} twice in one object")
    return fields


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_float, object_pairs_hook=_object)


def _row(path: Path, place: str, value: object) -> Row | DataError:
    if isinstance(value, dict):
        return Row(place, value)
    return at(path, place, f"the row is a JSON {type(value).__name__}, not an object")


def _csv(path: Path, delimiter: str | None) -> Iterator[Row | DataError]:
    # The standard limit of 128 KiB a field is shorter than long-context questions. It is one
    # setting for the whole process; there is no other way to raise it.
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(_lines(path), delimiter=_delimiter(path, delimiter), strict=True)
    header: list[str] = []
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as e:
            problem = at(path, line, f"not valid CSV: {e}", hint=_csv_hint(path, str(e)))
            if not header or reader.line_num > line:  # it took other lines with it
                raise problem from e
            yield problem
            continue
        if cells is None:
            return
        if not any(cell.strip() for cell in cells) and len(cells) < 2:
            continue
        if not header:
            header = _header(path, line, cells)
        elif len(cells) == len(header):
            yield Row(str(line), dict(zip(header, cells, strict=True)))
        else:
            message = f"{len(cells)} fields, but the header has {len(header)}"
            yield at(path, line, message, hint="quote fields that hold the delimiter")


def _csv_hint(path: Path, message: str) -> str:
    if "new-line character" in message:
        return f"does a line end in CR alone? tr '\\r' '\\n' < {path.name} > lf-{path.name}"
    return "is a quote here never closed?"


def _delimiter(path: Path, given: str | None) -> str:
    if given is None:
        head = next((line for line in _lines(path) if line.strip()), "")
        return max(DELIMITERS, key=head.count)
    character = "\t" if given == "\\t" else given
    if len(character) != 1 or character in '"\r\n':
        raise ConfigError(f"delimiter {given!r}: it must be one character, such as ; or \\t")
    return character


def _header(path: Path, line: int, cells: list[str]) -> list[str]:
    names = [cell.strip() or f"column {i}" for i, cell in enumerate(cells, 1)]
    for name in names:
        if names.count(name) > 1:
            raise at(path, line, f"the column {name!r} is there twice; rename one")
    return names
