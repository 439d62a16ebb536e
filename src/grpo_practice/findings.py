"""A finding: one thing that was checked, how bad it is, and what to do about it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_practice.errors import GrpoPracticeError, RunFailedError
from grpo_practice.text import count

Severity = Literal["ok", "warning", "problem"]
"""`ok`: nothing to do; `warning`: a person should know; `problem`: a command fails over it."""
Evidence = tuple[float | None, float | None]
"""A number, and the number that it is part of, or is compared with."""
NO_NUMBER: Evidence = (None, None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked: by `doctor`, in a run that has ended, or by `runs diagnose`."""

    about: str
    """Subject of the sentence, such as `student`, `practice data` or `truncated`."""
    severity: Severity
    sentence: str
    hint: str | None = None
    """Advice: a thing to change or to look at."""
    command: str | None = None
    """Command that changes or shows it."""
    n: float | None = None
    of: float | None = None
    """Number that `n` is a part of, or is compared with."""
    exit_code: int = 0
    """Exit code of the command that fails over it; 0 unless it is a problem."""


def ok(about: str, sentence: str) -> Finding:
    """Return a finding that leaves nothing to do."""
    return Finding(about, "ok", sentence)


def warning(
    about: str,
    sentence: str,
    hint: str | None = None,
    command: str | None = None,
    evidence: Evidence = NO_NUMBER,
) -> Finding:
    """Return a finding that stops nothing, but that a person should know of."""
    return Finding(about, "warning", sentence, hint, command, *evidence)


def counted(
    about: str,
    evidence: Evidence,
    sentence: str,
    hint: str | None,
    command: str | None,
    stands_out: bool,
) -> Finding:
    """Return a finding on a number, and what it is part of; a warning if it stands out."""
    return Finding(about, "warning" if stands_out else "ok", sentence, hint, command, *evidence)


def failure(
    about: str,
    sentence: str,
    hint: str | None = None,
    command: str | None = None,
    evidence: Evidence = NO_NUMBER,
) -> Finding:
    """Return the finding that a run has failed, though it came to its end."""
    exit_code = RunFailedError.exit_code
    return Finding(about, "problem", sentence, hint, command, *evidence, exit_code)


def problem(about: str, error: GrpoPracticeError) -> Finding:
    """Return the finding that a command would end with this error."""
    return Finding(about, "problem", str(error), error.hint, exit_code=error.exit_code)


def noteworthy(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that a person should look at, the problems first."""
    found = (finding for finding in findings if finding.severity != "ok")
    return sorted(found, key=lambda finding: finding.severity != "problem")


def problems(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings over which a command fails."""
    return [finding for finding in findings if finding.severity == "problem"]


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the exit code of the first problem; 0 without one."""
    return next((finding.exit_code for finding in problems(findings)), 0)


def remedy(findings: Iterable[Finding]) -> str | None:
    """Return the command to type about the first problem that has one; None without any."""
    return next((found.command for found in problems(findings) if found.command), None)


def totals(findings: Sequence[Finding]) -> str:
    """Count what a person should look at: `1 problem, 2 warnings`."""
    failed = len(problems(findings))
    warned = len(noteworthy(findings)) - failed
    return f"{count(failed, 'problem')}, {count(warned, 'warning')}"
