"""`export-agent`: the practised agent as a file."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from grpo_practice.cli.options import PROGRAM, DbOption, existing_store
from grpo_practice.cli.terminal.formatting import note
from grpo_practice.errors import ConfigError
from grpo_practice.redact import redactor

_FORMATS: Mapping[str, Literal["yaml", "md", "json"]] = {".md": "md", ".json": "json"}


def export_agent(
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Whose (default: the latest practice run)."),
    ] = None,
    step: Annotated[
        str, typer.Option(metavar="last|best|N", help="With what it knew after that step.")
    ] = "last",
    format_: Annotated[
        Literal["yaml", "md", "json"] | None,
        typer.Option(
            "--format", help="yaml is what `eval --agent` reads (default: by the file's name)."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Default: stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    db: DbOption = None,
) -> None:
    """Write the agent with what it learnt to a file.

    Its prompt is byte for byte the one that was measured.

    Example: grpo-practice export-agent --run math --step last -o agent.yaml
    """
    from grpo_practice.app.agent_export import export_agent as export

    kind = format_ or _FORMATS.get(output.suffix.lower() if output else "", "yaml")
    with existing_store(db) as store:
        text = export(store, run, step, kind)
    if output is None:
        sys.stdout.write(text)
        return
    write_file(output, text, force=force)
    note(f"wrote {output}")
    if kind == "yaml":
        note(f"next: {PROGRAM} eval --agent {output}")


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
