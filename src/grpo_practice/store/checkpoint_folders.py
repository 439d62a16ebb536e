"""Folders of checkpoints beside a database: where they are, and how they go with their run."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ENDING = ".train"
"""Ending of the name of the folder beside a database that holds all its checkpoints."""


def checkpoints_root(database: Path) -> Path:
    """Return the folder of all checkpoints of a database."""
    return database.resolve().with_name(f"{database.name}{ENDING}")


def checkpoint_folder(database: Path, path: str) -> Path | None:
    """Return the folder of a checkpoint; None where it is not there.

    One that is not below the database's own folder of checkpoints is none: a database of somebody
    else may name any.
    """
    root = checkpoints_root(database)
    folder = (root.parent / path).resolve()
    below = not root.is_symlink() and root in folder.parents
    return folder if below and folder.is_dir() else None


def remove_checkpoints(database: Path, paths: Iterable[str]) -> None:
    """Delete folders of checkpoints, and what is empty above them."""
    root = checkpoints_root(database)
    for path in paths:
        folder = checkpoint_folder(database, path)
        if folder is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        for above in folder.parents:
            if above != root and root not in above.parents:
                break
            with suppress(OSError):  # something else is in it
                above.rmdir()
