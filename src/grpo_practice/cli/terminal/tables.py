"""Labelled facts and tables, with control characters made visible."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

from grpo_practice.cli.terminal.formatting import say
from grpo_practice.core.text import visible

if TYPE_CHECKING:
    from rich.table import Table

    from grpo_practice.reports.base import Shown
    from grpo_practice.reports.conclusion import Conclusion

GAP = 2
"""Spaces between columns."""
PIPED = 120
"""Width if the output is not a terminal."""


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print labels and texts, one pair per row; rows without a text are omitted.

    Long texts are wrapped within their column.
    """
    from rich.table import Table

    told = [(f"  {label}", visible(text)) for label, text in rows if text]
    grid = Table.grid(padding=(0, GAP))
    # Beside labels that take most of the room, texts would have one word per line.
    if told and max(len(label) for label, _ in told) > room() // 2:
        grid.add_column()
        for label, text in told:
            grid.add_row("", f"{label.strip()}: {text}")
    else:
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for row in told:
            grid.add_row(*row)
    _print(grid)


def show_conclusion(conclusion: "Conclusion") -> None:
    """Print the verdict, and below it the lines that explain it."""
    say(
        conclusion.headline,
        style={"good": "bold green", "bad": "bold red"}.get(conclusion.tone, "bold"),
    )
    facts(conclusion.lines.items())


def show_summary(report: "Shown") -> None:
    """Print the rows that a report has for notebooks: the title, then labels and texts."""
    (title,), *rows = report.summary()
    say(title, style="bold")
    facts((row[0], row[1]) for row in rows)


def beside(label: str, width: int, text: str, *, style: str | None = None) -> None:
    """Print a text after its label, wrapped within its column on a terminal.

    A text that contains a command stays on one line, so that it can be copied.
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
    """Print a table; columns named in `right` are right-aligned.

    On a narrow terminal, headers are stacked word by word, and the columns in `least` are omitted,
    in that order.
    """
    from grpo_practice.core.redact import redactor

    shown = [[redactor.text(visible(cell)) for cell in row] for row in rows]
    if not shown:
        return
    columns = list(zip(headers, *shown, strict=True))
    most, left_out = room(stderr=stderr), list[str]()
    while _width(columns, _narrowest) > most and len(left_out) < len(least):
        left_out.append(least[len(left_out)])
        columns = [column for column in columns if column[0] not in left_out]
    if _width(columns, _widest) <= most and all(map(str.isprintable, chain(*columns))):
        _print_lines([_aligned(column, right) for column in columns], stderr=stderr)
    else:
        _print(_narrow(columns, most, right), stderr=stderr)
    if named := [name for name in left_out if name in headers]:
        say(f"  columns left out at this width: {', '.join(named)}")


def _aligned(column: Sequence[str], right: Collection[str]) -> list[str]:
    """Return the cells of a column, padded to its width."""
    from rich.cells import cell_len

    width = _widest(column)
    fills = (" " * (width - cell_len(cell)) for cell in column)
    pairs = zip(column, fills, strict=True)
    if column[0] in right:
        return [fill + cell for cell, fill in pairs]
    return [cell + fill for cell, fill in pairs]


def _print_lines(columns: Sequence[Sequence[str]], *, stderr: bool) -> None:
    """Print a table whose columns fit."""
    # Rich's own table takes a third of a second for 500 rows, thirty times as long.
    from rich.text import Text

    from grpo_practice.cli.terminal.consoles import err, out
    from grpo_practice.core.redact import redactor

    header, *body = ((" " * GAP).join(cells).rstrip() for cells in zip(*columns, strict=True))
    text = Text(redactor.text(header), style="bold")  # the console redacts only plain text
    (err if stderr else out).print(text, "\n".join(body), sep="\n", soft_wrap=True)


def _narrow(columns: Sequence[Sequence[str]], most: int, right: Collection[str]) -> "Table":
    """Return a table whose cells have several lines or whose columns do not fit without folding."""
    from rich.table import Table

    # Without fixed widths, rich narrows every column and breaks words in all of them.
    stack = _width(columns, _narrowest) <= most < _width(columns, _widest)
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column[0] in right else "left"
        width = _narrowest(column) if stack else None
        made.add_column(column[0], justify=justify, overflow="fold", width=width)
    for row in list(zip(*columns, strict=True))[1:]:
        made.add_row(*row)
    return made


def room(*, stderr: bool = False) -> int:
    """Return the width available for a table."""
    from grpo_practice.cli.terminal.consoles import err, out

    console = err if stderr else out
    return console.width if console.is_terminal or "COLUMNS" in os.environ else PIPED


def in_parts(name: str, width: int) -> str:
    """Break a path-like name after `/` into lines of at most `width` columns.

    A longer part is not broken.
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
    """Return the width of a column with its header stacked word by word."""
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
    # soft_wrap, because a program that reads the pipe must get one line per row.
    console.print("\n".join(line.rstrip() for line in lines), soft_wrap=True)
