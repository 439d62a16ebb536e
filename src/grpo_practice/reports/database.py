"""Reports on the database file: a copy of it, and whether it is whole."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from grpo_practice.errors import StoreError
from grpo_practice.reports.base import Report
from grpo_practice.store.check import TableCheck


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseCopy(Report):
    """A copy that was made, and checked."""

    source: Path
    path: Path
    bytes: int
    left: Path | None = None
    """Folder of checkpoints of training runs, which is not copied; None where there is none."""

    @property
    def next_command(self) -> str:
        """Command that looks into the copy."""
        return f"grpo-practice runs list --db {shlex.quote(str(self.path))}"

    @override
    def document(self) -> dict[str, Any]:
        """Return what `db backup --json` prints."""
        return {
            "schema": "grpo-practice.db-backup/1",
            "source": str(self.source),
            "path": str(self.path),
            "bytes": self.bytes,
            "left": str(self.left) if self.left else None,
            "next": self.next_command,
            "exit": 0,
        }


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseCheck(Report):
    """Checks of a database, and what is wrong with it."""

    path: Path
    findings: Sequence[TableCheck]

    @property
    def problems(self) -> int:
        """Number of things that are wrong."""
        return sum(len(finding.wrong) for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """Exit code of `db check`."""
        return StoreError.exit_code if self.problems else 0

    @override
    def document(self) -> dict[str, Any]:
        """Return what `db check --json` prints."""
        return {
            "schema": "grpo-practice.db-check/1",
            "path": str(self.path),
            "checks": [
                {"name": f.name, "looked_at": f.n, "wrong": f.wrong, "notes": f.notes}
                for f in self.findings
            ],
            "exit": self.exit_code,
        }
