"""`db`: a copy of the database while it is used, and a look at whether it is whole."""

import os
from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.options import PROGRAM, DbOption, JsonOption, database
from grpo_practice.cli.terminal.formatting import count, note, print_json, say
from grpo_practice.errors import ConfigError, StoreError

app = typer.Typer(no_args_is_help=True, help="Copy and check the database.")


@app.command()
def backup(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", dir_okay=False, help="Default: the database's name + .bak."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    db: DbOption = None,
) -> None:
    """Copy the database as it is now, also while a run writes to it.

    The copy is one file that only you can read; it is checked before it gets its name.

    Example: grpo-practice db backup before-the-change.db
    """
    from grpo_practice.store.db import copy, why_no_copy

    source = _existing(db)
    target = file or source.with_name(f"{source.name}.bak")
    if why_not := why_no_copy(source, target):
        raise ConfigError(f"{target} {why_not}", hint="name another file")
    if os.path.lexists(target) and not force:
        raise ConfigError(f"{target} is there already", hint="name another file, or add --force")
    if target.with_name(f"{target.name}-wal").exists():
        raise ConfigError(f"{target} is a database that is being used", hint="name another file")
    copy(source, target)
    say(f"copied {source} to {target} ({target.stat().st_size:,} bytes)")
    note(f"next: {PROGRAM} runs list --db {target}")


@app.command()
def check(db: DbOption = None, json: JsonOption = False) -> None:
    """Look whether the database is whole: the file, its references, and what runs rely on.

    It changes nothing, and works while a run writes. Exit code 7 when something is wrong.

    Example: grpo-practice db check
    """
    from grpo_practice.store.check import check as look

    path = _existing(db)
    findings = look(path)
    wrong = sum(len(f.wrong) for f in findings)
    code = StoreError.exit_code if wrong else 0
    if json:
        checks = [{"name": f.name, "looked_at": f.n, "wrong": f.wrong} for f in findings]
        schema = "grpo-practice.db-check/1"
        print_json({"schema": schema, "path": str(path), "checks": checks, "exit": code})
    else:
        for f in findings:
            verdict = "ok" if not f.wrong else count(len(f.wrong), "problem")
            say(f"{f.name} ({f.n:,}): {verdict}", style="red" if f.wrong else None)
            for text in f.wrong:
                say(f"  {text}")
        say(f"{path}: {'it is whole' if not wrong else count(wrong, 'problem')}", style="bold")
        if wrong:
            note(f"hint: go on with a copy made by {PROGRAM} db backup, if there is one")
    if wrong:
        raise typer.Exit(code)


def _existing(db: Path | None) -> Path:
    """The database.

    Raises:
        ConfigError: There is none.
    """
    path = database(db)
    if not path.exists():
        raise ConfigError(f"there is no database {path} yet", hint="name another with --db")
    return path
