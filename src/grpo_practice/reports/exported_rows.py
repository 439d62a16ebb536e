"""Reports on rollouts that were written to a file."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class ExportedRows(Report):
    """Rollouts of a run, one to a row of a file."""

    run: str
    """Reference to the run, as typed."""
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
            "next": f"grpo-practice rollouts list {shlex.quote(self.run)}",
            "exit": 0,
        }


@dataclass(frozen=True, slots=True, repr=False)
class ExportedData(Report):
    """Attempts of a run as a file of training data."""

    run: str
    """Reference to the run, as typed."""
    format: str
    path: Path
    rows: int
    left_out: Mapping[str, int]
    """Reason → number of rollouts that are in no row for it."""
    simulated: bool

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.training-data/1`."""
        return {
            "schema": "grpo-practice.training-data/1",
            "run": self.run,
            "format": self.format,
            "path": str(self.path),
            "rows": self.rows,
            "left_out": dict(self.left_out),
            "simulated": self.simulated,
            "next": f"grpo-practice rollouts list {shlex.quote(self.run)}",
            "exit": 0,
        }
