"""`runs tag` and `runs note`: labels of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.options import DbOption, JsonOption, workspace
from grpo_practice.cli.runs import RunArgument
from grpo_practice.cli.terminal.formatting import print_json, say_next
from grpo_practice.cli.terminal.tables import show_summary


def tag(
    run: RunArgument,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="TAG", help="Tags to add, each one word.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Remove this tag; repeatable.")
    ] = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Add or remove tags of a run; without any, show them and its note.

    Example: grpo-practice runs tag math baseline --remove draft
    """
    _show(db, run, json=json, add=tags or (), remove=remove or ())


def note(
    run: RunArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="New note; '' removes the note.")
    ] = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write a note on a run; without a text, show it and the tags.

    Example: grpo-practice runs note math "Shorter prompt; half of the questions."
    """
    _show(db, run, json=json, note=text)


def _show(
    db: Path | None,
    run: str,
    *,
    json: bool,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    note: str | None = None,
) -> None:
    report = workspace(db).label_run(run, add=add, remove=remove, note=note)
    if json:
        print_json(report.document())
        return
    show_summary(report)
    say_next(report.next_command)
