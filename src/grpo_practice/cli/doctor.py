"""`doctor`: find problems before a run costs anything."""

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
from grpo_practice.cli.terminal.findings_view import show_findings
from grpo_practice.cli.terminal.formatting import print_json, say, tell
from grpo_practice.core.findings import totals

if TYPE_CHECKING:
    from grpo_practice.core.events import Event


def doctor(
    config: ConfigOption = None,
    agent: AgentOption = None,
    set_: SetOption = None,
    run: Annotated[
        bool, typer.Option("--run", help="Also run the programs that the config names.")
    ] = False,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Check this machine, the database, the endpoints, the tools, the verify function and the data.

    Each endpoint gets two tiny requests, a local server two more at once, the teacher makes one
    tiny comparison, and each toolkit is opened; nothing is stored. Programs in the config (a verify
    file, an agent, a tool server) run only with --run. Without --config, the latest run's config is
    checked. If there is no run, only the machine is checked, or the agent given by --agent.

    Example: grpo-practice doctor --config practice.yaml
    """
    from grpo_practice.core.events import Notice

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
        # Skip notices that were already printed before the first request.
        show_findings(found for found in diagnosis.findings if found.sentence not in told)
        say(totals(diagnosis.findings), style="bold")
    if diagnosis.exit_code:
        raise typer.Exit(diagnosis.exit_code)
