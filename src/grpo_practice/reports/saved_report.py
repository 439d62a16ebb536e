"""A report that was made of runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class SavedReport(Report):
    """The report of one or more runs, as a text."""

    schema: ClassVar = "grpo-practice.report/1"
    in_document: ClassVar = ("runs", "answers", "format", "path", "bytes")

    runs: Sequence[str]
    format: str
    """`html` or `md`."""
    text: str
    path: Path | None
    """File that it was written to; None for none."""
    answers: Sequence[str]
    """Answer for each run to whether it is better."""
    next_command: str
    """Command to type now."""

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return len(self.text.encode())

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each run: whether it is better."""
        return [("report",), *zip(self.runs, self.answers, strict=True)]
