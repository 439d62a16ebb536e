"""Operations on the database file itself, which neither create the file nor upgrade its schema."""

import os
from pathlib import Path

from grpo_practice.core.errors import ConfigError
from grpo_practice.reports.database import DatabaseCheck, DatabaseCopy
from grpo_practice.store import check
from grpo_practice.store.backup import copy, why_no_copy
from grpo_practice.store.checkpoint_folders import checkpoints_root

STDOUT = "-"
"""Name that commands use for standard output."""


def check_database(path: Path) -> DatabaseCheck:
    """Check the integrity of the database; see `Workspace.check`."""
    return DatabaseCheck(path, check.check(_existing(path)))


def backup_database(path: Path, target: Path | None, *, replace: bool) -> DatabaseCopy:
    """Copy the database as it is now; see `Workspace.backup`."""
    source = _existing(path)
    if target == Path(STDOUT):
        raise ConfigError(
            "a copy of the database is checked before it gets its name, so it cannot go to stdout",
            hint="name a file: grpo-practice db backup copy.db",
        )
    target = target or source.with_name(f"{source.name}.bak")
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
    copy(source, target)
    folder = checkpoints_root(source)
    left = folder if folder.is_dir() else None
    return DatabaseCopy(source, target, target.stat().st_size, left)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ConfigError(f"there is no database {path} yet", hint="name another with --db")
    return path
