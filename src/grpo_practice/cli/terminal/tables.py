"""Facts and tables; control characters in them are made visible."""

import os
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from grpo_practice.text import visible

if TYPE_CHECKING:
    from rich.table import Table

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


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    stderr: bool = False,
) -> None:
    """Print a table; the columns named in `right` are numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        number = header in right
        made.add_column(header, justify="right" if number else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(visible, row))
    _print(made, stderr=stderr)


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
