"""Reports on exported rollouts."""

import shlex
from collections.abc import Mapping, Sequence
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
class ExportedRuns(Report):
    """Runs in a database of their own, with everything that they need."""

    schema: ClassVar = "grpo-practice.exported-runs/1"

    runs: Sequence[str]
    """Names of all runs in the file."""
    path: Path
    bytes: int
    left: Path | None = None
    """Folder of training checkpoints, which are not copied; None if the runs have none."""

    @property
    @override
    def next_command(self) -> str:
        """Command that lists the runs of the file."""
        return f"grpo-practice runs list --db {shlex.quote(str(self.path))}"


@dataclass(frozen=True, slots=True, repr=False)
class ImportedRuns(Report):
    """Runs that were taken in from another database."""

    schema: ClassVar = "grpo-practice.imported-runs/1"

    path: Path
    """The other database."""
    runs: Mapping[str, str]
    """Name in the file → name here, for each new run."""
    known: Mapping[str, str]
    """Name in the file → name of a run with the same content that was here before."""
    hidden: Sequence[str]
    """Names of datasets that belong to other rows here; `data list` does not show the imported
    ones."""
    untrusted: Sequence[str]
    """New runs with settings that you have not trusted, so that they start and contact nothing."""

    @property
    @override
    def next_command(self) -> str:
        """Command that shows a new run, or lists all runs if none is new."""
        whole = [name for name in self.runs.values() if "/" not in name]
        shown = [*whole, *self.runs.values()][:1]
        return shlex.join(["grpo-practice", "runs", *(["show", *shown] if shown else ["list"])])

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each run."""
        rows = [(name, "imported") for name in self.runs.values()]
        return [(str(self.path),), *rows, *((name, "already here") for name in self.known.values())]


@dataclass(frozen=True, slots=True, repr=False)
class ExportedData(ExportedRows):
    """Rollouts of a run exported as training data."""

    schema: ClassVar = "grpo-practice.training-data/1"

    left_out: Mapping[str, int]
    """Reason → number of rollouts left out of the file for that reason."""
    simulated: bool
