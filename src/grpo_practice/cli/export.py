"""`export-agent`: the practised agent as a file."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.options import PROGRAM, DbOption, existing_store
from grpo_practice.cli.terminal.formatting import note
from grpo_practice.errors import ConfigError
from grpo_practice.export.render import FORMATS, format_by_name
from grpo_practice.redact import redactor


def export_agent(
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Whose (default: the latest practice run)."),
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
        typer.Option("--output", "-o", metavar="PATH", help="Default: stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    db: DbOption = None,
) -> None:
    """Write the agent with what it learnt to a file or a folder.

    Its prompt is byte for byte the one that was measured.

    Example: grpo-practice export-agent --run math --step last -o agent.yaml
    """
    from grpo_practice.app import agent_export

    kind = format_ or format_by_name(str(output or ""))
    with existing_store(db) as store:
        if output is None:
            sys.stdout.write(agent_export.export_agent(store, run, step, kind))
            return
        files = agent_export.export_files(store, run, step, kind)
    write_files(output, files, force=force)
    note(f"wrote {output}")
    if FORMATS[kind].loadable:
        note(f"next: {PROGRAM} eval --agent {output}")


def write_files(path: Path, files: Mapping[str, str], *, force: bool = False) -> None:
    """Write each file at its place below `path`; the one with the place "" at `path` itself.

    Raises:
        ConfigError: `path` is there already and `force` is not set, or it cannot be written.
    """
    if os.path.lexists(path) and not force:  # before the first of many is written
        raise ConfigError(f"{path} is there already", hint="name another, or add --force")
    for place, text in files.items():
        target = path / place
        if place:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise ConfigError(f"cannot write {target.parent}: {e.strerror}") from e
        write_file(target, text, force=force)


def write_file(path: Path, text: str, *, force: bool = False) -> None:
    """The file holds this text, without secrets, or is as it was.

    A link in its place is replaced, not followed.

    Raises:
        ConfigError: It is there already and `force` is not set, or it cannot be written.
    """
    if os.path.lexists(path) and not force:
        raise ConfigError(f"{path} is there already", hint="name another file, or add --force")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as e:
        raise ConfigError(f"cannot write {path}: {e.strerror}") from e
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(redactor.text(text))
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as e:
        raise ConfigError(f"cannot write {path}: {e.strerror}") from e
    finally:
        temporary.unlink(missing_ok=True)
