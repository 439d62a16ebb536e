"""Reports on rollouts that were written to a file."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class ExportedRows(Report):
    """Rollouts of a run, one to a row of a file."""

    schema: ClassVar = "grpo-practice.exported-rows/1"

    run: str
    """Reference to the run, as typed."""
    format: str
    path: Path
    rows: int

    @property
    @override
    def next_command(self) -> str:
        """Command to type now: the list of these rollouts."""
        return f"grpo-practice rollouts list {shlex.quote(self.run)}"


@dataclass(frozen=True, slots=True, repr=False)
class ExportedData(ExportedRows):
    """Attempts of a run as a file of training data."""

    schema: ClassVar = "grpo-practice.training-data/1"

    left_out: Mapping[str, int]
    """Reason → number of rollouts that are in no row for it."""
    simulated: bool
