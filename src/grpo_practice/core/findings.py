"""A finding: one thing that was checked, its severity, and the advice about it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_practice.core.errors import GrpoPracticeError, RunFailedError
from grpo_practice.core.text import count

Severity = Literal["ok", "warning", "problem"]
"""Severity: nothing to do, something a person should know, or something that fails a command."""
Figure = tuple[float | None, float | None]
"""A number, and the total or reference number to read it against."""
NO_NUMBER: Figure = (None, None)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check by `doctor`, at the end of a run, or by `runs diagnose`."""

    about: str
    """Subject of the sentence, such as `student`, `practice data` or `truncated`."""
    severity: Severity
    sentence: str
    hint: str | None = None
    """Advice: something to change or to look at."""
    command: str | None = None
    """Command that makes the change or shows the details."""
    n: float | None = None
    of: float | None = None
    """Total that `n` is part of, or number that `n` is compared with."""
    exit_code: int = 0
    """Exit code of a command that fails because of this finding; 0 unless it is a problem."""


def ok(about: str, sentence: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(about, "ok", sentence)


def warning(
    about: str,
    sentence: str,
    hint: str | None = None,
    command: str | None = None,
    figure: Figure = NO_NUMBER,
) -> Finding:
    """Return a finding that stops nothing but that a person should know about."""
    return Finding(about, "warning", sentence, hint, command, *figure)


def counted(
    about: str,
    figure: Figure,
    sentence: str,
    hint: str | None,
    command: str | None,
    stands_out: bool,
) -> Finding:
    """Return a finding about a number and its total: a warning if `stands_out`, else `ok`."""
    return Finding(about, "warning" if stands_out else "ok", sentence, hint, command, *figure)


def failure(
    about: str,
    sentence: str,
    hint: str | None = None,
    command: str | None = None,
    figure: Figure = NO_NUMBER,
) -> Finding:
    """Return the finding that a run failed although it reached its end."""
    exit_code = RunFailedError.exit_code
    return Finding(about, "problem", sentence, hint, command, *figure, exit_code)


def problem(about: str, error: GrpoPracticeError) -> Finding:
    """Return the finding that a command would end with this error."""
    return Finding(about, "problem", str(error), error.hint, exit_code=error.exit_code)


def noteworthy(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that a person should look at, problems first."""
    found = (finding for finding in findings if finding.severity != "ok")
    return sorted(found, key=lambda finding: finding.severity != "problem")


def problems(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that make a command fail."""
    return [finding for finding in findings if finding.severity == "problem"]


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the exit code of the first problem, or 0 if there is no problem."""
    return next((finding.exit_code for finding in problems(findings)), 0)


def remedy(findings: Iterable[Finding]) -> str | None:
    """Return the command of the first problem that has one, or None."""
    return next((found.command for found in problems(findings) if found.command), None)


def totals(findings: Sequence[Finding]) -> str:
    """Count the problems and warnings: `1 problem, 2 warnings`."""
    failed = len(problems(findings))
    warned = len(noteworthy(findings)) - failed
    return f"{count(failed, 'problem')}, {count(warned, 'warning')}"
