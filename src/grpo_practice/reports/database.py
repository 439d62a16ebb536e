"""Reports on the database file: a backup copy and an integrity check."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.errors import StoreError
from grpo_practice.reports.base import Report
from grpo_practice.store.check import TableCheck


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseCopy(Report):
    """A backup copy of the database, already checked."""

    schema: ClassVar = "grpo-practice.db-backup/1"

    source: Path
    path: Path
    bytes: int
    left: Path | None = None
    """Folder of training checkpoints, which is not copied; None if there is no such folder."""

    @property
    @override
    def next_command(self) -> str:
        """Command that lists the runs of the copy."""
        return f"grpo-practice runs list --db {shlex.quote(str(self.path))}"


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseCheck(Report):
    """Integrity checks of a database, with the faults found."""

    schema: ClassVar = "grpo-practice.db-check/1"

    path: Path
    checks: Sequence[TableCheck]

    @property
    def problems(self) -> int:
        """Number of faults found."""
        return sum(len(check.wrong) for check in self.checks)

    @property
    @override
    def exit_code(self) -> int:
        """Exit code of `db check`."""
        return StoreError.exit_code if self.problems else 0
