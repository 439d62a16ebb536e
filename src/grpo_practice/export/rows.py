"""Rows as CSV that is safe in spreadsheets, or as exact JSON lines."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from typing_extensions import override

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.foreign_text import respell
from grpo_practice.core.text import visible
from grpo_practice.store.queries.export_rows import ExportRow

RowFormat = Literal["csv", "jsonl"]
_BEGINNING = re.compile(r"(^|[;|\t\r\n])([\s\"]*)([=+\-@\uff1d\uff0b\uff0d\uff20]?)")
"""Start of a cell, followed by the sign of a formula if there is one. A spreadsheet may use `;`,
`|` or a tab as separator. Spreadsheets drop white space and quotes before the sign, and some treat
full-width signs as normal ones."""
T = TypeVar("T")


class Counted(Iterable[T]):
    """One-pass iterable over rows that counts them.

    Attributes:
        n: Number of rows read so far.
    """

    def __init__(self, rows: Iterable[T]) -> None:
        self._rows, self.n = rows, 0

    @override
    def __iter__(self) -> Iterator[T]:
        for row in self._rows:
            self.n += 1
            yield row


def format_of_rows(path: Path) -> RowFormat:
    """Return the format selected by a file name: `jsonl` if the name has no ending.

    Raises:
        ConfigError: The ending belongs to another format.
    """
    ending = path.suffix.lower()
    if ending in ("", ".jsonl"):
        return "jsonl"
    if ending == ".csv":
        return "csv"
    raise ConfigError(
        f"{path.name} ends in {ending}, which is the ending of no format of runs export",
        hint="end it in .csv, .jsonl or .db, or choose the format with --format",
    )


def row_lines(rows: Iterable[ExportRow], format: RowFormat) -> Iterator[str]:
    """Yield the rows as lines of this format; CSV starts with the column names."""
    if format == "jsonl":
        yield from (json_line(asdict(row)) for row in rows)
        return
    for n, row in enumerate(rows):
        if n == 0:
            yield _csv_line([field.name for field in fields(ExportRow)])
        yield _csv_line([cell(value) for value in asdict(row).values()])


def json_line(row: Mapping[str, Any]) -> str:
    """Return the row as a JSON line in which no character can control a terminal."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return respell(text, lambda char: json.dumps(char)[1:-1]) + "\n"


def cell(value: object) -> str | int | float | None:
    """Convert the value to a cell, with an apostrophe before any sign that starts a formula."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    made = _BEGINNING.sub(lambda m: f"{m[1]}{m[2]}'{m[3]}" if m[3] else m[0], text)
    # Some spreadsheets drop a leading tab and then parse the rest.
    return f"'{made}" if made.startswith("\t") else made


def _csv_line(cells: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()
