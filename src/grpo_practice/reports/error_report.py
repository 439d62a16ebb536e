"""The error that ended a command."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from grpo_practice.errors import Change
from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class ErrorReport(Report):
    """An error, and the exit code that it means."""

    kind: str
    message: str
    hint: str | None
    exit_code: int
    diff: Sequence[Change] = ()
    """Keys that differ from what a run was started with."""

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.error/1`."""
        diff = [{"key": c.key, "was": c.was, "is": c.now} for c in self.diff]
        return {
            "schema": "grpo-practice.error/1",
            "error": {"kind": self.kind, "message": self.message, "hint": self.hint, "diff": diff},
            "exit": self.exit_code,
        }
