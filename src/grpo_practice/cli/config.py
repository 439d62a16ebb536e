"""`config`: show and validate a config before it costs anything."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpo_practice.cli.options import (
    PROGRAM,
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
from grpo_practice.cli.terminal.formatting import note, print_json, say, say_next
from grpo_practice.cli.terminal.tables import facts
from grpo_practice.core.text import visible

if TYPE_CHECKING:
    from grpo_practice.api.workspace import ConfigReport

app = typer.Typer(no_args_is_help=True, help="Show and validate configs.")


@app.command()
def show(
    config: ConfigOption = None,
    agent: AgentOption = None,
    set_: SetOption = None,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Print the config as a command would use it.

    Keys are hidden. The output can be saved and loaded as a config. Without --config, the latest
    run's config is shown.

    Example: grpo-practice config show --config math.yaml --set practice.epochs=2
    """
    from grpo_practice.cli.terminal.consoles import out

    loaded = _loaded(config, agent, set_, trust, trust_host, db)
    if json:
        print_json(loaded.document())
        return
    out.print(visible(loaded.text), soft_wrap=True, end="")
    _notices(loaded)


@app.command()
def validate(
    config: ConfigOption = None,
    agent: AgentOption = None,
    set_: SetOption = None,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Check a config and list the settings in use.

    Keys that have no effect are listed too. Without --config, the latest run's config is checked.

    Example: grpo-practice config validate --config practice.yaml
    """
    loaded = _loaded(config, agent, set_, trust, trust_host, db)
    if json:
        print_json(loaded.document())
        return
    say(f"{loaded.path or 'the configuration of the latest run'} can be used", style="bold")
    facts(loaded.used.items())
    for text in loaded.ignored:
        say(f"ignored: {text}")
    _notices(loaded)
    flags = f" --config {shlex.quote(config)}" if config else ""
    flags += f" --agent {shlex.quote(str(agent))}" if agent else ""
    # An agent's file alone has no questions.
    asks = loaded.config.datasets or not agent
    say_next(f"{PROGRAM} {loaded.command if asks else 'doctor'}{flags}")


def _loaded(
    config: str | None,
    agent: Path | None,
    sets: list[str] | None,
    trust: list[Path] | None,
    hosts: list[str] | None,
    db: Path | None,
) -> "ConfigReport":
    ws = workspace(db)
    return ws.configuration(config, sets or [], agent=agent, env=trusting(trust, hosts))


def _notices(loaded: "ConfigReport") -> None:
    from grpo_practice.config.trust.keys import sentences

    for text in sentences(loaded.routes):
        note(text)
    for text in loaded.notices:
        note(f"note: {text}", style="yellow")
