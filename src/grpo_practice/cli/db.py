"""`db`: back up and check the database."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.options import PROGRAM, DbOption, ForceOption, JsonOption, workspace
from grpo_practice.cli.terminal.formatting import count, note, note_next, print_json, say

app = typer.Typer(no_args_is_help=True, help="Copy and check the database.")


@app.command()
def backup(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            dir_okay=False,
            help="Output file (default: the database's name + .bak).",
        ),
    ] = None,
    force: ForceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Copy the database, even while a run writes to it.

    The copy is a single file that only you can read, and is checked before it gets its final name.

    Example: grpo-practice db backup before-the-change.db
    """
    made = workspace(db).backup(file, replace=force)
    if json:
        print_json(made.document())
        return
    say(f"copied {made.source} to {made.path} ({made.bytes:,} bytes)")
    if made.left:
        say(f"not copied: the checkpoints of training runs, in {made.left}")
    note_next(made.next_command)


@app.command()
def check(db: DbOption = None, json: JsonOption = False) -> None:
    """Check the database for damage.

    The check covers the file, its references, and the invariants that runs rely on. The database is
    not changed, and a run may write to it. Exit code 7 means that problems were found.

    Example: grpo-practice db check
    """
    checked = workspace(db).check()
    if json:
        print_json(checked.document())
    else:
        for f in checked.checks:
            told = count(len(f.notes), "note") if f.notes else "ok"
            verdict = count(len(f.wrong), "problem") if f.wrong else told
            say(f"{f.name} ({f.looked_at:,}): {verdict}", style="red" if f.wrong else None)
            for text in [*f.wrong, *f.notes]:
                say(f"  {text}")
        found = count(checked.problems, "problem") if checked.problems else "it is intact"
        say(f"{checked.path}: {found}", style="bold")
        if checked.problems:
            note(f"hint: continue with a copy made by {PROGRAM} db backup, if you have one")
    if checked.exit_code:
        raise typer.Exit(checked.exit_code)
