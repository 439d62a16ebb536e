"""Facts and tables; control characters in them are made visible."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from grpo_practice.cli.terminal.formatting import say
from grpo_practice.text import visible

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2
"""Spaces between columns."""
PIPED = 120
"""Columns to use where there is no terminal to fit."""


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print labels and texts, one under the other; rows without a text are left out.

    Long texts are wrapped under themselves.
    """
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for label, text in rows:
        if text:
            grid.add_row(f"  {label}", visible(text))
    _print(grid)


def beside(label: str, width: int, text: str, *, style: str | None = None) -> None:
    """Print a text beside its label, wrapped under itself on a terminal.

    A text with a command stays in one line, for whoever copies it.
    """
    from rich.table import Table

    from grpo_practice.cli.terminal.consoles import in_one, out

    if in_one(out, text):
        say(f"{label:{width}} {text}", style=style)
        return
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, width=width)
    grid.add_column(overflow="fold")
    grid.add_row(label, visible(text), style=style)
    _print(grid)


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    least: Sequence[str] = (),
    stderr: bool = False,
) -> None:
    """Print a table; the columns named in `right` are numbers.

    On a narrow terminal, headers are stacked word by word, and columns are left out: those that
    `least` names, in that order.
    """
    from rich.table import Table

    columns = list(zip(headers, *([visible(cell) for cell in row] for row in rows), strict=True))
    most, left_out = room(stderr=stderr), list[str]()
    while _width(columns, _narrowest) > most and len(left_out) < len(least):
        left_out.append(least[len(left_out)])
        columns = [column for column in columns if column[0] not in left_out]
    # Left to itself, rich makes every column narrower, and so cuts words in all of them.
    stack = _width(columns, _narrowest) <= most < _width(columns, _widest)
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column[0] in right else "left"
        width = _narrowest(column) if stack else None
        made.add_column(column[0], justify=justify, overflow="fold", width=width)
    for row in list(zip(*columns, strict=True))[1:]:
        made.add_row(*row)
    _print(made, stderr=stderr)
    if made.row_count and (named := [name for name in left_out if name in headers]):
        say(f"  left out, since it is narrow here: {', '.join(named)}")


def room(*, stderr: bool = False) -> int:
    """Return the columns that a table may take."""
    from grpo_practice.cli.terminal.consoles import err, out

    console = err if stderr else out
    return console.width if console.is_terminal or "COLUMNS" in os.environ else PIPED


def in_parts(name: str, width: int) -> str:
    """Return a path-like name in lines of at most so many columns, broken after `/`.

    A part that is longer stays whole.
    """
    lines = [""]
    for part in re.findall("[^/]*/|[^/]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _width(columns: Sequence[Sequence[str]], of: Callable[[Sequence[str]], int]) -> int:
    return sum(map(of, columns)) + GAP * (len(columns) - 1)


def _widest(column: Sequence[str]) -> int:
    from rich.cells import cell_len

    return max(cell_len(line) for cell in column for line in cell.split("\n"))


def _narrowest(column: Sequence[str]) -> int:
    """Return the width of a column whose header is stacked, word by word."""
    return _widest([*column[0].split(), *column[1:]])


def _print(made: "Table", *, stderr: bool = False) -> None:
    from grpo_practice.cli.terminal.consoles import as_text, err, out

    console = err if stderr else out
    if not made.row_count:
        return
    if console.is_terminal:
        console.print(made)
        return
    lines = as_text(made, None if "COLUMNS" in os.environ else PIPED).splitlines()
    console.print("\n".join(line.rstrip() for line in lines), soft_wrap=True)
