"""Reports on rollouts that were written to a file."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class ExportedRows(Report):
    """Rollouts of a run, one to a row of a file."""

    run: str
    format: str
    path: Path
    rows: int

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.exported-rows/1`."""
        return {
            "schema": "grpo-practice.exported-rows/1",
            "run": self.run,
            "format": self.format,
            "path": str(self.path),
            "rows": self.rows,
            "next": f"grpo-practice runs show {shlex.quote(self.run)}",
            "exit": 0,
        }
