"""The obstacles of a run, as a person reads them."""

from typing import TYPE_CHECKING

from grpo_practice.cli.options import on_database
from grpo_practice.cli.terminal.formatting import say, say_next

if TYPE_CHECKING:
    from grpo_practice.reports.run_diagnosis import RunDiagnosis


def show_diagnosis(report: "RunDiagnosis") -> None:
    """Print each finding that stands out with its number, and below it what to do."""
    say(f"{report.run}{' (simulated)' if report.simulated else ''}", style="bold")
    for finding in report.findings:
        say(f"  {finding.sentence}")
        say(f"    {finding.advice}")
        if finding.command is not None:
            say(f"    {on_database(finding.command)}")
    if not report.findings:
        looked = ", ".join(dict.fromkeys(finding.kind for finding in report.looked_at))
        say(f"  nothing stands out: looked at {looked or 'no closed step'}")
    say_next(report.next_command)
