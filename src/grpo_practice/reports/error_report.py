"""Report on the error that ended a command."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from grpo_practice.core.errors import ChangedKey
from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class ErrorReport(Report):
    """An error and its exit code."""

    schema: ClassVar = "grpo-practice.error/1"
    in_document: ClassVar = ("kind", "message", "hint", "diff")

    kind: str
    message: str
    hint: str | None
    exit_code: int
    diff: Sequence[ChangedKey] = ()
    """Keys whose values differ from those at the start of the run."""
