"""Findings on the terminal."""

from collections.abc import Iterable

from grpo_practice.cli.options import on_database
from grpo_practice.cli.terminal.tables import beside
from grpo_practice.core.findings import Finding

STYLES = {"ok": None, "warning": "yellow", "problem": "red"}
WIDTH = 8
"""Width of the severity column."""


def show_findings(findings: Iterable[Finding]) -> None:
    """Print each finding after its severity, with its hint and its command below it."""
    for found in findings:
        said = f"{found.about}: {found.sentence}"
        beside(found.severity, WIDTH, said, style=STYLES[found.severity])
        if found.hint:
            beside("", WIDTH, f"hint: {found.hint}")
        if found.command:
            beside("", WIDTH, f"type: {on_database(found.command)}")
