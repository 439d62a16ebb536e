"""`export-agent`: write the practised agent, or trained weights, to a file or a folder."""

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import (
    DbOption,
    ForceOption,
    JsonOption,
    on_database,
    run_names,
    workspace,
)
from grpo_practice.cli.terminal.formatting import note, note_next, print_json, say, say_next
from grpo_practice.cli.terminal.tables import show_summary
from grpo_practice.core.errors import ConfigError
from grpo_practice.reports.agent_formats import FORMATS

if TYPE_CHECKING:
    from grpo_practice import Workspace


def export_agent(
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=run_names,
            help="Run of the agent (default: the latest practice run).",
        ),
    ] = None,
    step: Annotated[
        str,
        typer.Option(metavar="last|best|N", help="Experiences after this step; the first is 0."),
    ] = "last",
    # Quoted, so that it is evaluated when all slices have added their formats.
    format_: """Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(FORMATS),
            autocompletion=lambda: list(FORMATS),
            help="`eval --agent` reads yaml (default: by the file name).",
        ),
    ]""" = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Output path (default and `-`: stdout)."
        ),
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="For a training run: write the whole model, not only the adapter."
        ),
    ] = False,
    force: ForceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write the agent with its experiences to a file or a folder.

    The prompt is byte for byte the prompt that was measured. A training run is exported as a folder
    with the adapter, or with the whole model if --merge is given, and the agent's file.

    Example: grpo-practice export-agent --run math --step last -o agent.yaml
    """
    if output == Path("-"):
        output = None
    ws = workspace(db)
    if run is not None and ws.is_training(run):
        _export_weights(ws, run, step, output, format_=format_, merge=merge, force=force, json=json)
        return
    if merge:
        raise _no_weights(ws, run)
    exported = ws.export(run, step, format=format_, output=output, force=force)
    if json:
        print_json(exported.document())
        return
    if output is None:
        sys.stdout.write(exported.text)
        return
    note(f"wrote {output}")
    for when in exported.measure:
        note(f"the score {when} has not been measured")
    if exported.call:
        note(f"next, in the program that started the run: {exported.call}")
    elif exported.next_command:
        note_next(exported.next_command)
    if exported.measure and exported.renew_command:
        note(f"then, to add the scores to the file: {on_database(exported.renew_command)}")


def _export_weights(
    ws: "Workspace",
    run: str,
    step: str,
    output: Path | None,
    *,
    format_: str | None,
    merge: bool,
    force: bool,
    json: bool,
) -> None:
    if format_ is not None:
        raise ConfigError(f"{run} is exported as a folder", hint="remove --format")
    exported = ws.export_trained(run, step, output=output, whole=merge, force=force)
    if json:
        print_json(exported.document())
        return
    show_summary(exported)
    if exported.library:
        library = f"--library {quote(exported.library)}"
        say(f"to add the library practised on top: {on_database(exported.next_command)} {library}")
    say_next(exported.next_command)


def _no_weights(ws: "Workspace", run: str | None) -> ConfigError:
    if run is not None:
        ws.run(run)  # raises if the run does not exist
    return ConfigError(
        "--merge works only for a training run: other runs have no weights",
        hint="name one with --run: grpo-practice runs list",
    )
