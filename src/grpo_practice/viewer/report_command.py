"""`report`: write one page about runs."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from grpo_practice.cli.completion import run_names
from grpo_practice.cli.options import DbOption, JsonOption, workspace
from grpo_practice.cli.terminal.formatting import file_size, note, note_next, print_json

FILES = {"html": Path("report.html"), "md": Path("report.md")}
"""Default output files."""


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            autocompletion=run_names,
            show_default=False,
            help="Run names, as in `runs list` (default: the latest practice run).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Output file (default: report.html; `-`: stdout).",
        ),
    ] = None,
    format_: Annotated[
        Literal["html", "md"] | None,
        typer.Option("--format", help="md is for a pull request (default: by the file name)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write a page about runs: the improvement and its uncertainty, and the lessons learnt.

    The page is one self-contained file without scripts or external resources.

    Example: grpo-practice report math -o math.html
    """
    path = None if output == Path("-") else output or FILES[format_ or "html"]
    saved = workspace(db).report(*(runs or ()), format=format_, output=path, force=force)
    if json:
        print_json(saved.document())
        return
    if path is None:
        sys.stdout.write(saved.text)
        return
    for answer in saved.answers:
        note(answer)
    note(f"wrote {path} ({file_size(saved.bytes)})")
    note_next(saved.next_command)
