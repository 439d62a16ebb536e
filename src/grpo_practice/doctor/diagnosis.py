"""A check and its result; all of them together are a diagnosis."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import override

from grpo_practice.errors import GrpoPracticeError
from grpo_practice.reports.base import Report

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, and what to do about it."""

    about: str
    state: State
    text: str
    hint: str | None = None
    exit_code: int = 0
    """Exit code of the command that would meet this problem."""


def ok(about: str, text: str) -> Check:
    """Return a check that leaves nothing to do."""
    return Check(about, "ok", text)


def warning(about: str, text: str, hint: str | None = None) -> Check:
    """Return a check that hinders nothing, and that a person should know of."""
    return Check(about, "warning", text, hint)


def not_run(about: str, what: str) -> Check:
    """Return the check of a program that was left alone."""
    return warning(about, f"{what}: not run", "--run tries the programs that a config names")


def problem(about: str, error: GrpoPracticeError) -> Check:
    """Return the check of something that a command would end with this error for."""
    return Check(about, "problem", str(error), error.hint, error.exit_code)


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(Report):
    """All checks, in the order in which a run would meet them."""

    checks: Sequence[Check]
    requests: int = 0
    """Requests that endpoints were asked."""

    @property
    def problems(self) -> int:
        """Number of checks that a command would end for."""
        return sum(check.state == "problem" for check in self.checks)

    @property
    def warnings(self) -> int:
        """Number of checks that a person should know of."""
        return sum(check.state == "warning" for check in self.checks)

    @property
    def exit_code(self) -> int:
        """Exit code of the first problem; 0 without one."""
        return next((c.exit_code for c in self.checks if c.state == "problem"), 0)

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each check."""
        title = f"{self.problems} problems, {self.warnings} warnings"
        return [(title,), *((c.state, f"{c.about}: {c.text}") for c in self.checks)]

    @override
    def document(self) -> dict[str, Any]:
        """Return the JSON document `grpo-practice.doctor/1`."""
        return {
            "schema": "grpo-practice.doctor/1",
            "findings": [
                {"about": c.about, "state": c.state, "text": c.text, "hint": c.hint}
                for c in self.checks
            ],
            "requests": {"new": self.requests},
            "exit": self.exit_code,
        }
