"""Folders of checkpoints next to a database: their paths, and their removal with a run."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ENDING = ".train"
"""Suffix of the folder next to a database that holds all its checkpoints."""


def checkpoints_root(database: Path) -> Path:
    """Return the folder of all checkpoints of a database."""
    return database.resolve().with_name(f"{database.name}{ENDING}")


def checkpoint_folder(database: Path, path: str) -> Path | None:
    """Return the folder of a checkpoint, or None if it does not exist.

    A folder outside the database's own checkpoint folder is never returned, because an untrusted
    database could name any folder.
    """
    root = checkpoints_root(database)
    # Resolved before the test: `..` or a link in a foreign path must not lead outside.
    folder = (root.parent / path).resolve()
    # A root that is a link could lead anywhere, and folders below it must not be deleted.
    below = not root.is_symlink() and root in folder.parents
    return folder if below and folder.is_dir() else None


def remove_checkpoints(database: Path, paths: Iterable[str]) -> None:
    """Delete folders of checkpoints, and their parent folders if these become empty."""
    root = checkpoints_root(database)
    for path in paths:
        folder = checkpoint_folder(database, path)
        if folder is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        for above in folder.parents:
            if above != root and root not in above.parents:
                break
            with suppress(OSError):  # it contains something else
                above.rmdir()
