"""Report on a report file that was written about runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class SavedReport(Report):
    """The text of a report about one or more runs."""

    schema: ClassVar = "grpo-practice.report/1"
    in_document: ClassVar = ("runs", "answers", "format", "path", "bytes")

    runs: Sequence[str]
    format: str
    """Format of the text: `html` or `md`."""
    text: str
    path: Path | None
    """File that the text was written to; None if it was not written."""
    answers: Sequence[str]
    """Verdict for each run on whether it is better."""
    next_command: str
    """Command to type next."""

    @property
    def bytes(self) -> int:
        """Size of the text in bytes."""
        return len(self.text.encode())

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each run with its verdict."""
        return [("report",), *zip(self.runs, self.answers, strict=True)]
