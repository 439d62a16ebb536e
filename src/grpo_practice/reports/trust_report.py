"""Report on whom the user trusts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class TrustReport(Report):
    """All that is remembered of the user's word on what others made."""

    file: Path | None
    """File that remembers it; None where there is no home to keep one."""
    records: Sequence[Mapping[str, str]]
    """Things that are trusted, the oldest first: a folder, a config, or a host for a key."""

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.trust/1`."""
        return {
            "schema": "grpo-practice.trust/1",
            "file": str(self.file) if self.file else None,
            "trusted": [dict(record) for record in self.records],
            "exit": 0,
        }

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each thing that is trusted."""
        return [(str(self.file or "nothing is remembered"),), *map(_row, self.records)]


def _row(record: Mapping[str, str]) -> tuple[str, str]:
    if "folder" in record:
        return "folder", record["folder"]
    if "host" in record:
        return "host", f"{record['host']} for {record['variable']}"
    return "config", f"{record.get('of', '')} ({record['sha256'][:12]})"
