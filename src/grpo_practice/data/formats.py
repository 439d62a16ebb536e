"""Parse files into rows, and record the line on which each row begins."""

import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.data import parquet
from grpo_practice.data.cells import first_repeated, value_in
from grpo_practice.data.columns import naming
from grpo_practice.data.text_lines import STDIN, Row, at, lines, shown, through

Format = Literal["jsonl", "json", "csv", "tsv", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[str, Format] = {".ndjson": "jsonl", **{f".{name}": name for name in FORMATS}}
DELIMITERS = (",", ";", "\t")
RUNS_CODE = frozenset({".pkl", ".pickle", ".pt", ".pth", ".py"})
SPACE = " \t\r\n"
CUT = ("Expecting", "Unterminated", "Invalid \\")
"""Prefixes of decoder messages that may mean that the file was cut off."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file or stream to read rows from."""

    path: Path
    """Path of the file; `-` means standard input. Text formats may be compressed with gzip."""
    format: str | None = None
    """One of `FORMATS`; None infers it from the suffix, ignoring a final `.gz`."""
    delimiter: str | None = None
    """Delimiter of a CSV file; None selects the most frequent candidate in the first line."""
    columns: Sequence[str] = ()
    """Column names of a CSV file without a header line; () takes the names from the first line."""
    rows: str | None = None
    """Key of the list of rows in a JSON file that is one object; None selects the only list of
    objects.
    """

    @property
    def name(self) -> str:
        """Name of the source in messages."""
        return shown(self.path)

    @property
    def origin(self) -> str:
        """Origin of the rows, as stored."""
        return "stdin" if self.path == STDIN else os.path.realpath(self.path)


def rows(source: FileSource | Path) -> Iterator[Row | DataError]:
    """Yield every row of the file in order; yield an error for a broken row and continue.

    Faults that affect more than one row are raised: a missing file, a wrong encoding, a bad CSV
    header, a quote that is never closed, or a syntax error in a `.json` file.

    Raises:
        DataError: The file cannot be read in the given format.
        ConfigError: An option does not suit the format, or the format is unknown.
    """
    source = source if isinstance(source, FileSource) else FileSource(source)
    path, format_ = source.path, format_of(source)
    if source.delimiter is not None and format_ != "csv":
        raise ConfigError(f"{shown(path)}: --delimiter is for CSV files only")
    if source.columns and format_ not in ("csv", "tsv"):
        raise ConfigError(f"{shown(path)}: --columns is for CSV and TSV files only")
    if source.rows is not None and format_ != "json":
        raise ConfigError(f"{shown(path)}: --rows is for JSON files only")
    match format_:
        case "jsonl":
            return _jsonl(path)
        case "json":
            return _json(path, source.rows)
        case "csv":
            return _csv(path, source.delimiter, source.columns)
        case "tsv":
            return _csv(path, "\t", source.columns)
        case "parquet":
            # The index of a parquet file is at its end, so reading needs a seekable file.
            if path == STDIN or path.suffix.lower() == ".gz":
                raise DataError(f"{shown(path)}: parquet is read from a plain file only")
            return parquet.rows(path)


def format_of(source: FileSource) -> Format:
    """Return the format that the source names, or else the format implied by the file's suffix."""
    path = source.path
    if source.format is not None:
        for known in FORMATS:
            if source.format == known:
                return known
        raise ConfigError(f"--format {source.format} is not one of {', '.join(FORMATS)}")
    if path == STDIN:
        raise ConfigError(
            "piped input has no file name that shows its format", hint="add --format jsonl"
        )
    suffix = (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    why = "never read, because loading it may run code" if suffix in RUNS_CODE else "not supported"
    raise DataError(
        f"{path}: {suffix or 'a file without a suffix'} is {why}",
        hint="save it as .jsonl (one object per line), .json (one list of objects), .csv, .tsv or"
        " .parquet; or name its format: --format jsonl",
    )


_IS_IT_CUT = " (the file's last line: is it cut off?)"


def _message(message: str) -> str:
    """Remove the trailing "at" from a decoder's message, so that a position can be appended."""
    return message.removesuffix(" starting at").removesuffix(" at")


def _jsonl(path: Path) -> Iterator[Row | DataError]:
    for number, line in enumerate(lines(path), 1):
        start = _skip(line, 0)
        if start == len(line):
            continue
        try:
            value, end = value_in(line, start)
            end = _skip(line, end)
            if end < len(line):
                raise json.JSONDecodeError("Extra data", line, end)
        except json.JSONDecodeError as e:
            cut = "" if line.endswith("\n") or not e.msg.startswith(CUT) else _IS_IT_CUT
            yield at(path, number, f"not valid JSON: {_message(e.msg)} at column {e.pos + 1}{cut}")
        else:
            yield _row(path, str(number), value)


def _json(path: Path, key: str | None) -> Iterator[Row | DataError]:
    text = "".join(lines(path))
    line, before = 1, 0
    try:
        if text.startswith("{", start := _skip(text, 0)):
            found, end = value_in(text, start)
            if (end := _skip(text, end)) < len(text):
                raise json.JSONDecodeError("expected '['", text, start)
            key, values = _listed(path, found, key)
            for number, value in enumerate(values, 1):
                row = _row(path, f"row {number}", value)
                yield replace(row, within=key) if isinstance(row, Row) else row
            return
        if key is not None:
            raise ConfigError(f"--rows {key}: {shown(path)} is already one list")
        for number, (place, value) in enumerate(_elements(text), 1):
            line, before = line + text.count("\n", before, place), place
            yield _row(path, f"{line} (row {number})", value)
    except json.JSONDecodeError as e:
        raise at(
            path,
            e.lineno,
            f"not one JSON list: {_message(e.msg)} at column {e.colno}",
            hint="a .json file holds one list of objects; a file with one object per line is"
            " .jsonl",
        ) from e


def _listed(path: Path, found: dict[str, Any], key: str | None) -> tuple[str, list[Any]]:
    """Find the list of rows in a file that is one object; return its key and the list."""
    if key is not None:
        if not isinstance(found.get(key), list):
            raise ConfigError(
                f"--rows {key}: there is no list under this key in {shown(path)}",
                hint=f"it has {', '.join(map(repr, list(found)[:20]))}; save a list inside one of"
                " these as a file of its own",
            )
        return key, found[key]
    lists = {
        name: value
        for name, value in found.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    if len(lists) != 1:
        has = ", ".join(map(repr, list(found)[:20])) or "nothing"
        raise DataError(
            f"{shown(path)}: the file is one object, and it is not clear which list in it holds"
            f" the rows: it has {has}",
            hint=f"name it with --rows {next(iter(lists), 'KEY')}; if the file has one object per"
            " line, give it the suffix .jsonl",
        )
    return next(iter(lists.items()))


def _elements(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the position and value of each element of the list."""
    place = _after(text, 0, "[")
    while not text.startswith("]", place):
        value, end = value_in(text, place)
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
    # Not lstrip: that would copy the rest of the text for each element.
    while place < len(text) and text[place] in SPACE:
        place += 1
    return place


def _row(path: Path, place: str, value: object) -> Row | DataError:
    if isinstance(value, dict):
        return Row(place, value)
    return at(path, place, f"the row is a JSON {type(value).__name__}, not an object")


def _csv(path: Path, delimiter: str | None, names: Sequence[str]) -> Iterator[Row | DataError]:
    # The default limit of 128 KiB per field is too small for long-context questions. The csv
    # module offers only this process-wide setting.
    csv.field_size_limit(2**31 - 1)
    text = lines(path)
    before, head = _head(text)
    # strict, because the module otherwise accepts malformed quotes and guesses a value.
    reader = csv.reader(chain([head], text), delimiter=_delimiter(delimiter, head), strict=True)
    header = _header(path, 1, list(names))
    while True:
        line = before + reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as e:
            hint = "is there an unclosed quotation mark here?"
            if "new-line character" in str(e):
                mend = through(path, r"tr '\r' '\n'", "lf")
                hint = f"does a line end in CR alone? {mend}"
            problem = at(path, line, f"not valid CSV: {e}", hint=hint)
            # An unclosed quote consumes later lines, so those rows are lost: fail.
            if not header or before + reader.line_num > line:
                raise problem from e
            yield problem
            continue
        if cells is None:
            return
        # `,,` is a row of empty cells; only a line without any delimiter is blank.
        if not any(cell.strip() for cell in cells) and len(cells) < 2:
            continue
        if not header:
            header = _header(path, line, cells)
        elif len(cells) == len(header):
            yield Row(str(line), dict(zip(header, cells, strict=True)))
        else:
            has = "but --columns names" if names else "but the header has"
            message = f"{len(cells)} fields, {has} {len(header)}"
            yield at(path, line, message, hint="quote fields that contain the delimiter")


def _head(text: Iterator[str]) -> tuple[int, str]:
    """Return the number of leading blank lines and the next line ('' at the end of the file)."""
    before = 0
    for line in text:
        if line.strip():
            return before, line
        before += 1
    return before, ""


def _delimiter(given: str | None, head: str) -> str:
    if given is None:
        return max(DELIMITERS, key=head.count)
    character = "\t" if given == "\\t" else given
    if len(character) != 1 or character in '"\r\n':
        raise ConfigError(f"delimiter {given!r}: it must be one character, such as ; or \\t")
    return character


def _header(path: Path, line: int, cells: list[str]) -> list[str]:
    names = [cell.strip() or f"column {i}" for i, cell in enumerate(cells, 1)]
    if (name := first_repeated(names)) is not None:
        problem = f"the column {name!r} appears twice; rename one"
        raise at(path, line, problem, hint=f"if this line is a row: {naming(cells)}")
    return names
