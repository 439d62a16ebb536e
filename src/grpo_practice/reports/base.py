"""Base of all reports: a short table for notebooks and the Python prompt, and a JSON document."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from shlex import quote
from typing import Any, ClassVar

from typing_extensions import override

from grpo_practice.core.errors import ChangedKey
from grpo_practice.core.text import brief, visible
from grpo_practice.reports.encoder import json_object, json_value

CELL = 200
"""Maximum number of characters in a cell of the table."""
ROWS = 20
"""Maximum number of rows shown, not counting the title."""


class Shown(ABC):
    """A value that displays itself as a short table."""

    __slots__ = ()

    @abstractmethod
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the rows of the table; the first row is the title."""

    @override
    def __repr__(self) -> str:
        title, *rows = self._cells()
        names = max((len(row[0]) for row in rows), default=0)
        lines = ["  ".join([row[0].ljust(names), *row[1:]]).rstrip() for row in rows]
        return "\n  ".join(["  ".join(title), *lines])

    def _repr_html_(self) -> str:
        """Return the table as HTML for a notebook, with all cells escaped."""
        title, *rows = (list(map(escape, row)) for row in self._cells())
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
        return f"<b>{' '.join(title)}</b><table>{body}</table>"

    def _cells(self) -> list[list[str]]:
        # Cells may hold text from a model, whose control characters must not reach the terminal.
        rows = [[visible(brief(cell, CELL)) for cell in row] for row in self.summary()]
        more = len(rows) - 1 - ROWS
        return rows[: ROWS + 1] + ([[f"… and {more} more"]] if more > 0 else [])


def export_command(run: str) -> str:
    """Return the command that writes a run's agent to a file that is unlikely to be a config."""
    return f"grpo-practice export-agent --run {quote(run)} -o {quote(f'{run}-enhanced.yaml')}"


class Report(Shown):
    """A typed result that is also the JSON document of a command; see `encoder`."""

    __slots__ = ()

    schema: ClassVar[str]
    """Name and version of the document."""

    @property
    def next_command(self) -> str | Sequence[str] | None:
        """Next command, or commands, to type; None if nothing is left to do."""
        return None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the command; None if the document is printed before the command ends."""
        return 0

    def document(self) -> dict[str, Any]:
        """Return the JSON document that the command prints with `--json`."""
        ends = {"next": json_value(self.next_command), "exit": self.exit_code}
        return {"schema": self.schema, **json_object(self), **ends}

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each string or number of the document."""
        document = self.document()
        plain = [(k, str(v)) for k, v in document.items() if isinstance(v, str | int | float)]
        return [(type(self).__name__,), *(row for row in plain if row[0] not in ("schema", "exit"))]


def number(value: float | None) -> str:
    """Format a reward or score with three decimals; `-` for None."""
    return "-" if value is None else f"{value:.3f}"


@dataclass(frozen=True, slots=True, repr=False)
class ErrorReport(Report):
    """An error and its exit code."""

    schema: ClassVar = "grpo-practice.error/1"
    in_document: ClassVar = ("kind", "message", "hint", "diff")

    kind: str
    message: str
    hint: str | None
    exit_code: int
    diff: Sequence[ChangedKey] = ()
    """Keys whose values differ from those at the start of the run."""
