"""Operations on the database file itself, which neither create the file nor upgrade its schema."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.errors import ConfigError, StoreError
from grpo_practice.reports.base import Report
from grpo_practice.store import check
from grpo_practice.store.backup import copy, why_no_copy
from grpo_practice.store.check import TableCheck
from grpo_practice.store.trained_steps import checkpoints_root


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseCopy(Report):
    """A backup copy of the database, already checked."""

    schema: ClassVar = "grpo-practice.db-backup/1"

    source: Path
    path: Path
    bytes: int
    left: Path | None = None
    """Folder of training checkpoints, which is not copied; None if there is no such folder."""

    @property
    @override
    def next_command(self) -> str:
        """Command that lists the runs of the copy."""
        return f"grpo-practice runs list --db {shlex.quote(str(self.path))}"


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseCheck(Report):
    """Integrity checks of a database, with the faults found."""

    schema: ClassVar = "grpo-practice.db-check/1"

    path: Path
    checks: Sequence[TableCheck]

    @property
    def problems(self) -> int:
        """Number of faults found."""
        return sum(len(check.wrong) for check in self.checks)

    @property
    @override
    def exit_code(self) -> int:
        """Exit code of `db check`."""
        return StoreError.exit_code if self.problems else 0


STDOUT = "-"
"""Name that commands use for standard output."""


def check_database(path: Path) -> DatabaseCheck:
    """Check the integrity of the database; see `Workspace.check`."""
    return DatabaseCheck(path, check.check(existing(path)))


def backup_database(path: Path, target: Path | None, *, replace: bool) -> DatabaseCopy:
    """Copy the database as it is now; see `Workspace.backup`."""
    source = existing(path)
    target = free_target(source, target or source.with_name(f"{source.name}.bak"), replace=replace)
    copy(source, target)
    folder = checkpoints_root(source)
    left = folder if folder.is_dir() else None
    return DatabaseCopy(source, target, target.stat().st_size, left)


def free_target(source: Path, target: Path, *, replace: bool) -> Path:
    """Return the file to write a copy to; raise ConfigError if it must not be written."""
    if target == Path(STDOUT):
        raise ConfigError(
            "a copy of the database is checked before it gets its name, so it cannot go to stdout",
            hint="name a file: grpo-practice db backup copy.db",
        )
    if why_not := why_no_copy(source, target):
        raise ConfigError(f"{target} {why_not}", hint="name another file")
    if target.exists() and not target.is_file():
        raise ConfigError(f"{target} is not a regular file", hint="name another file")
    # Treat a dangling link as existing, because someone created it.
    if os.path.lexists(target) and not replace:
        raise ConfigError(f"{target} already exists", hint="name another file, or add --force")
    file = target.resolve()  # SQLite names the log after the file, not after a link
    # SQLite would replay this log into the copy.
    if file.with_name(f"{file.name}-wal").exists():
        raise ConfigError(f"{target} is a database in use", hint="name another file")
    return target


def existing(path: Path) -> Path:
    """Return the path of a database; raise ConfigError if there is none."""
    if not path.exists():
        raise ConfigError(f"there is no database {path} yet", hint="name another with --db")
    return path
