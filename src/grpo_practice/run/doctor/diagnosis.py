"""Report of `doctor`: all findings, and the resulting exit code."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.findings import Finding, exit_code, totals, warning
from grpo_practice.reports.base import Report


def not_run(about: str, what: str) -> Finding:
    """Return the finding for a program that was not run."""
    return warning(about, f"{what}: not run", "add --run to try the programs that a config names")


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(Report):
    """All findings, in the order in which a run would encounter them."""

    schema: ClassVar = "grpo-practice.doctor/1"

    findings: Sequence[Finding]
    requests: int = 0
    """Number of requests sent to endpoints."""

    @property
    @override
    def exit_code(self) -> int:
        """Exit code of the first problem; 0 if there is no problem."""
        return exit_code(self.findings)

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each finding."""
        rows = ((f.severity, f"{f.about}: {f.sentence}") for f in self.findings)
        return [(totals(self.findings),), *rows]
