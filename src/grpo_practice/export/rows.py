"""Rows as lines of CSV that a spreadsheet only shows, or of JSON that are exact."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from typing_extensions import override

from grpo_practice.export.plain import respell
from grpo_practice.store.queries.export_rows import ExportRow
from grpo_practice.text import visible

RowFormat = Literal["csv", "jsonl"]
_BEGINNING = re.compile(r"(^|[;|\t\r\n])([\s\"]*)([=+\-@\uff1d\uff0b\uff0d\uff20]?)")
"""The beginning of a cell, also in a spreadsheet whose separator is `;`, `|` or a tab, and the sign
of a formula, if one follows. Spreadsheets drop white space and quotes before it; some read the wide
signs as the narrow ones."""
T = TypeVar("T")


class Counted(Iterable[T]):
    """Rows that are read once, and their number so far.

    Attributes:
        n: Number of rows that were taken.
    """

    def __init__(self, rows: Iterable[T]) -> None:
        self._rows, self.n = rows, 0

    @override
    def __iter__(self) -> Iterator[T]:
        for row in self._rows:
            self.n += 1
            yield row


def format_of_rows(path: Path) -> RowFormat:
    """Return the format that a file's name means: `jsonl` unless it ends in `.csv`."""
    return "csv" if path.suffix.lower() == ".csv" else "jsonl"


def row_lines(rows: Iterable[ExportRow], format: RowFormat) -> Iterator[str]:
    """Yield the rows as lines of this format, with the names of the columns first in CSV."""
    if format == "jsonl":
        yield from (json_line(asdict(row)) for row in rows)
        return
    for n, row in enumerate(rows):
        if n == 0:
            yield _csv_line([field.name for field in fields(ExportRow)])
        yield _csv_line([cell(value) for value in asdict(row).values()])


def json_line(row: Mapping[str, Any]) -> str:
    """Return the row as a line of JSON, in which no character acts on a terminal."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return respell(text, lambda char: json.dumps(char)[1:-1]) + "\n"


def cell(value: object) -> str | int | float | None:
    """Return the value as a cell: an apostrophe precedes each sign that could begin a formula."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    made = _BEGINNING.sub(lambda m: f"{m[1]}{m[2]}'{m[3]}" if m[3] else m[0], text)
    # Some spreadsheets drop a tab at the beginning, and then read the rest anew.
    return f"'{made}" if made.startswith("\t") else made


def _csv_line(cells: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()
