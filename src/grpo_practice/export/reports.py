"""Reports on exported rollouts."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class ExportedRows(Report):
    """Rollouts of a run, one per row of a file."""

    schema: ClassVar = "grpo-practice.exported-rows/1"

    run: str
    """Reference to the run, as typed."""
    format: str
    path: Path
    rows: int

    @property
    @override
    def next_command(self) -> str:
        """Command that lists these rollouts."""
        return f"grpo-practice rollouts list {shlex.quote(self.run)}"


@dataclass(frozen=True, slots=True, repr=False)
class ExportedData(ExportedRows):
    """Rollouts of a run exported as training data."""

    schema: ClassVar = "grpo-practice.training-data/1"

    left_out: Mapping[str, int]
    """Reason → number of rollouts left out of the file for that reason."""
    simulated: bool
