"""`init`: write the files of a first experiment."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.options import JsonOption
from grpo_practice.cli.terminal.formatting import print_json, say


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder (default: the current one).")
    ] = Path(),
    exp_id: Annotated[
        str, typer.Option("--exp-id", help="Name of the experiment.")
    ] = "my_first_practice",
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a config, .env.example and a sample dataset.

    Example: grpo-practice init my-task
    """
    from grpo_practice.cli.first_files import write_first_files

    written = write_first_files(folder, exp_id, force=force)
    if json:
        print_json(written.document())
        return
    for path in written.files:
        say(f"wrote {path}")
    for command in written.shell_commands:
        say(f"next: {command}")
    say("then fill in .env: a model, its URL and key, or only UTU_LLM_MODEL=sim to try it")
    for command in written.next_commands:
        say(f"next: {command}")
