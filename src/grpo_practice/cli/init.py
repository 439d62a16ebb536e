"""`init`: the files of a first experiment."""

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.options import PROGRAM
from grpo_practice.cli.terminal.formatting import say
from grpo_practice.errors import ConfigError
from grpo_practice.export.files import write_file


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where (default: here).")
    ] = Path(),
    exp_id: Annotated[
        str, typer.Option("--exp-id", help="Name of the experiment.")
    ] = "my_first_practice",
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write a config, .env.example and a dataset to start from.

    Example: grpo-practice init my-task
    """
    from grpo_practice.config.reading.discover import init_files
    from grpo_practice.config.trust import user_trust

    files = {folder / name: text for name, text in init_files(exp_id).items()}
    there = [path.name for path in files if path.exists() or path.is_symlink()]
    if there and not force:
        raise ConfigError(
            f"{', '.join(there)}: there already, in {folder.resolve()}",
            hint="name another folder, or add --force to replace what is there",
        )
    made = not folder.exists() or not any(folder.iterdir())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"cannot make {folder}: {e.strerror}") from e
    if made:  # what is in a folder of others is not yours because a config is added to it
        with suppress(ConfigError):
            user_trust(os.environ).remember_folder(folder)
    for path, text in files.items():
        write_file(path, text, force=force)
        say(f"wrote {path}")
    if folder != Path():
        say(f"next: cd {shlex.quote(str(folder))}")
    say("next: cp .env.example .env && chmod 600 .env")
    say("then fill in .env: a model, its URL and key, or UTU_LLM_MODEL=sim alone to try it")
    say(f"next: {PROGRAM} data upload mine.jsonl --name mine --verify exact")
    say(f"next: {PROGRAM} eval --config practice.yaml")
    say(f"next: {PROGRAM} practice --config practice.yaml")
