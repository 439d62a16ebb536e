"""`view` and `report`: show runs in a browser on this machine, or write one page about them."""

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_practice.cli.options import DbOption, ForceOption, JsonOption, run_names, workspace
from grpo_practice.cli.terminal.formatting import file_size, note, note_next, print_json, say, warn

if TYPE_CHECKING:
    from grpo_practice.viewer.server import Viewed


PORT = 8390


def view(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="PORT", help="Port; 0 picks a free one.")
    ] = PORT,
    open_: Annotated[bool, typer.Option("--open", help="Also open the browser.")] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """View runs in a browser, down to every message, even while they are running; until Ctrl-C.

    Pages are served only on this machine, and only at the printed secret address. They change only
    tags and notes of runs. With --json, the document is printed when the pages are ready.

    Example: grpo-practice view --open
    """

    def ready(now: "Viewed") -> None:
        if json:
            print_json(now.document())
            return
        say(now.url)
        note(f"serving {now.database} at the address above until Ctrl-C")
        note("keep the address secret: anyone who has it can read everything stored")

    # A page creates and drops tens of thousands of objects: with the default threshold, garbage
    # collection makes it a third slower.
    gc.set_threshold(50_000)
    workspace(db).view(port=port, open_browser=open_, on_ready=ready, on_event=warn)
    note("stopped")


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
    force: ForceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write a page about runs: the improvement and its uncertainty, and the lessons learnt.

    The page is one self-contained file without scripts or external resources.

    Example: grpo-practice report math -o math.html
    """
    # `-` is stdout; without --output the page goes into a file, unlike other exports.
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
