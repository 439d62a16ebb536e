"""The list of runs on the terminal."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from grpo_practice.cli.terminal.formatting import count, reward, say
from grpo_practice.cli.terminal.tables import GAP, in_parts, room, table
from grpo_practice.core.text import brief

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_practice.reports.run_list import Awaited, RunsReport

SIMULATED, IMPORTED = " (simulated)", " (imported)"
NAME, TEXT = 24, 32
"""Maximum length of a name that a configuration gives, and of a text that a person types."""
LEAST = ("steps", "agent", "differs by", "model", "dataset", "kind", "status", "tags", "arm")
"""Columns that a narrow terminal omits, in this order: name, score and begin remain."""


def show_list(report: "RunsReport") -> None:
    """Print a row for each run."""
    runs = report.runs
    all_simulated = len(runs) > 1 and all(run.simulated for run in runs)
    mark = "" if all_simulated else SIMULATED
    names = [
        run.name + (mark if run.simulated else "") + (IMPORTED if run.imported else "")
        for run in runs
    ]
    columns = {
        "score": [reward(run.score) for run in runs],
        "begun (UTC)": [_short(run.created_at) for run in runs],
        "arm": [brief(run.arm or "-", TEXT) for run in runs],
        "tags": [brief(" ".join(run.tags), TEXT) for run in runs],
        "status": [run.status for run in runs],
        "awaits": [_awaited(run.awaits) if run.awaits else "-" for run in runs],
        "kind": [run.shown_kind for run in runs],
        "dataset": [brief(one.dataset or "-", NAME) for one in runs],
        "model": [brief(one.model or "-", NAME) for one in runs],
        "differs by": [brief(one.arm_change or "-", TEXT) for one in runs],
        "agent": [brief(one.agent or "-", NAME) for one in runs],
        "steps": [
            "-" if run.kind == "recorded" else f"{run.steps_closed} of {run.steps}" for run in runs
        ],
    }
    # Most databases have none of these.
    said = {"tags": "", "arm": "-", "differs by": "-", "awaits": "-"}
    columns = {name: cells for name, cells in columns.items() if {*cells} != {said.get(name)}}
    table(
        ["run", *columns],
        zip(_in_room(names, columns), *columns.values(), strict=True),
        right=["score", "steps"],
        least=LEAST,
    )
    if runs and len(runs) < report.stored:
        say(f"  {len(runs)} of {count(report.stored, 'run')}")
    if all_simulated:
        say("  all are simulated, so they say nothing about a real model")


def _in_room(names: "Sequence[str]", columns: Mapping[str, "Sequence[str]"]) -> list[str]:
    """Return the run names unbroken, so that they can be copied, if they fit.

    Columns in `LEAST` are omitted to make room. If the names still do not fit, they are broken into
    several lines.
    """
    others = [[name, *cells] for name, cells in columns.items() if name not in LEAST]
    left = room() - sum(max(map(len, column)) + GAP for column in others)
    return [name if len(name) <= left else in_parts(name, left) for name in names]


def _awaited(awaits: "Awaited") -> str:
    return f"{awaits.requests} {' '.join(awaits.stages)} since {_short(awaits.since)}"


def _short(stored: str) -> str:
    """Format a stored time as month, day and time, or as a date if it is of another year."""
    this_year = stored[:4] == f"{datetime.now(UTC):%Y}"
    return f"{stored[5:10]} {stored[11:16]}" if this_year else stored[:10]
