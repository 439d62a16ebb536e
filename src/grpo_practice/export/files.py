"""Exported agents, and files that are written whole or not at all."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.errors import ConfigError
from grpo_practice.export.render import Files, one_text
from grpo_practice.redact import redactor


@dataclass(frozen=True, slots=True)
class Exported:
    """An agent with what it learnt, in one of the formats."""

    files: Files
    format: str
    call: str | None = None
    """Call that evaluates it, where only the program that began the run can."""

    @property
    def text(self) -> str:
        """The text of its one file.

        Raises:
            ConfigError: The format is a folder.
        """
        return one_text(self.files, self.format)


def write_files(path: Path, files: Files, *, force: bool = False) -> None:
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
    """Make the file hold this text, without secrets, or leave it as it was.

    A link in its place is replaced, not followed.

    Raises:
        ConfigError: The file exists and `force` is not set, or it cannot be written.
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
