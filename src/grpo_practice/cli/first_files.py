"""Files of a first experiment: a config, `.env.example` and a sample dataset."""

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.config.reading.discover import init_files
from grpo_practice.config.trust.word import user_trust
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.files import write_file
from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class FirstFiles(Report):
    """Files that were written to a folder for a first experiment."""

    schema: ClassVar = "grpo-practice.init/1"

    folder: Path
    files: Sequence[Path]

    @property
    def shell_commands(self) -> list[str]:
        """Shell commands that create a `.env` file to fill in."""
        there = [] if self.folder == Path() else [f"cd {shlex.quote(str(self.folder))}"]
        return [*there, "cp .env.example .env && chmod 600 .env"]

    @property
    @override
    def next_command(self) -> list[str]:
        """All commands to run, in order."""
        return [*self.shell_commands, *self.next_commands]

    @property
    def next_commands(self) -> list[str]:
        """Commands to run once `.env` is filled in."""
        return [
            "grpo-practice data upload mine.jsonl --name mine --verify exact",
            "grpo-practice data split mine --into train=0.5,test=0.5",
            "grpo-practice eval --config practice.yaml",
            "grpo-practice practice --config practice.yaml",
        ]


def write_first_files(folder: Path, exp_id: str, *, force: bool) -> FirstFiles:
    """Write the files, which are usable as they are, to the folder.

    Raises:
        ConfigError: `exp_id` is not a valid name, a file exists and `force` is not set, or the
            folder cannot be written.
    """
    files = {folder / name: text for name, text in init_files(exp_id).items()}
    there = [path.name for path in files if path.exists() or path.is_symlink()]
    if there and not force:
        raise ConfigError(
            f"{folder.resolve()} already contains {', '.join(there)}",
            hint="name another folder, or add --force to replace these files",
        )
    made = not folder.exists() or not any(folder.iterdir())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"cannot make {folder}: {e.strerror}") from e
    if made:  # adding a config does not make someone else's folder trustworthy
        with suppress(ConfigError):
            user_trust(os.environ).remember_folder(folder)
    for path, text in files.items():
        write_file(path, text, force=force)
    return FirstFiles(folder, list(files))
