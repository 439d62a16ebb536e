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


def remove_checkpoints(database: Path, paths: Iterable[str]) -> None:
    """Delete folders of checkpoints, and what is empty above them.

    Only below the database's own folder of checkpoints: a database of somebody else may name any.
    """
    root = checkpoints_root(database)
    if root.is_symlink():
        return
    for path in paths:
        folder = (root.parent / path).resolve()
        if root not in folder.parents:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        for above in folder.parents:
            if above != root and root not in above.parents:
                break
            with suppress(OSError):  # something else is in it
                above.rmdir()
