"""`doctor`: what would go wrong, before a run is paid."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import (
    AgentOption,
    ConfigOption,
    DbOption,
    JsonOption,
    SetOption,
    TrustHostOption,
    TrustOption,
    trusting,
    workspace,
)
from grpo_practice.cli.terminal.formatting import count, print_json, say, tell
from grpo_practice.cli.terminal.tables import beside
from grpo_practice.events import Notice

if TYPE_CHECKING:
    from grpo_practice.events import Event
    from grpo_practice.workspace import Diagnosis

STYLES = {"ok": None, "warning": "yellow", "problem": "red"}


def doctor(
    config: ConfigOption = None,
    agent: AgentOption = None,
    set_: SetOption = None,
    run: Annotated[
        bool, typer.Option("--run", help="Also try the programs that the config names.")
    ] = False,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Check this machine, the database, the endpoints, the tools, the verify function and the data.

    Each endpoint is asked two tiny questions, the teacher makes one tiny comparison, and each
    toolkit is opened; nothing is stored.
    Programs of the config (a verify file, an agent, a server of tools) are run with --run alone.
    Without --config the latest run's configuration is looked at, and without a run the machine
    alone, or the agent in a file of its own.

    Example: grpo-practice doctor --config practice.yaml
    """
    told = set[str]()

    def announce(event: "Event") -> None:
        if isinstance(event, Notice):
            told.add(event.text)
        tell(event)

    diagnosis = workspace(db).doctor(
        config,
        sets=set_ or [],
        agent=agent,
        run=run,
        env=trusting(trust, trust_host),
        on_event=announce,
    )
    if json:
        print_json(diagnosis.document())
    else:
        _show(diagnosis, told)
    if diagnosis.exit_code:
        raise typer.Exit(diagnosis.exit_code)


def _show(diagnosis: "Diagnosis", told: Collection[str]) -> None:
    """Print a line for each check that was not told before, and how many are no good."""
    for check in diagnosis.checks:
        if check.text in told:
            continue
        beside(check.state, 8, f"{check.about}: {check.text}", style=STYLES[check.state])
        if check.hint:
            beside("", 8, f"hint: {check.hint}")
    problems, warnings = diagnosis.problems, diagnosis.warnings
    say(f"{count(problems, 'problem')}, {count(warnings, 'warning')}", style="bold")
