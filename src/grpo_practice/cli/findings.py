"""`runs diagnose`: find the problems of a run."""

from grpo_practice.cli.options import DbOption, JsonOption, workspace
from grpo_practice.cli.runs import RunArgument
from grpo_practice.cli.terminal.findings_view import show_findings
from grpo_practice.cli.terminal.formatting import print_json, say, say_next
from grpo_practice.core.findings import noteworthy


def diagnose(run: RunArgument, db: DbOption = None, json: JsonOption = False) -> None:
    """List the problems that affect a run's learning or score.

    No requests are sent; the diagnosis uses only stored data.

    Example: grpo-practice runs diagnose math
    """
    report = workspace(db).diagnose(run)
    if json:
        print_json(report.document())
        return
    say(f"{report.run}{' (simulated)' if report.simulated else ''}", style="bold")
    show_findings(noteworthy(report.findings))
    if not noteworthy(report.findings):
        checked = ", ".join(dict.fromkeys(found.about for found in report.findings))
        say(f"no problems found; checked: {checked or 'no closed step'}")
    say_next(report.next_command)
