"""`export-agent`: the practised agent as a file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.completion import run_names
from grpo_practice.cli.options import DbOption, JsonOption, on_database, workspace
from grpo_practice.cli.terminal.formatting import note, note_next, print_json
from grpo_practice.export.render import FORMATS


def export_agent(
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=run_names,
            help="Its run (default: the latest practice run).",
        ),
    ] = None,
    step: Annotated[
        str, typer.Option(metavar="last|best|N", help="With what it knew after that step.")
    ] = "last",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(FORMATS),
            autocompletion=lambda: list(FORMATS),
            help="yaml is what `eval --agent` reads (default: by the file's name).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Default, and `-`: stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write the agent with what it learnt to a file or a folder.

    The prompt is byte for byte the one that was measured.

    Example: grpo-practice export-agent --run math --step last -o agent.yaml
    """
    if output == Path("-"):
        output = None
    exported = workspace(db).export(run, step, format=format_, output=output, force=force)
    if json:
        print_json(exported.document())
        return
    if output is None:
        sys.stdout.write(exported.text)
        return
    note(f"wrote {output}")
    for when in exported.measure:
        note(f"the score {when} is not measured")
    if exported.call:
        note(f"next, in the program that began the run: {exported.call}")
    elif exported.next_command:
        note_next(exported.next_command)
    if exported.measure and exported.renew_command:
        note(f"then, with the scores in the file: {on_database(exported.renew_command)}")
