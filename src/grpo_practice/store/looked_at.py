"""A database as it stood at one moment: for pages, which change nothing and hold nothing up."""

from pathlib import Path

from grpo_practice.errors import StoreError
from grpo_practice.store.db import VERSION, WAIT_S, check_ours, explained
from grpo_practice.store.reading import open_to_look
from grpo_practice.store.store import Store


class LookedAt(Store):
    """A store that is never written, migrated or locked; all its reads are of one moment.

    Close it soon: while it is open, the log of a run that goes on cannot shrink.
    """

    def __init__(self, path: Path, *, wait_s: float = WAIT_S) -> None:
        """Open the database and begin the one transaction.

        Raises:
            StoreError: The file cannot be read, is not ours, or has an older schema.
        """
        # Not Store's own: that makes the file, migrates it, and begins to write.
        self.path = self._file = path
        self._writes = None
        self._locks = None
        self._db = open_to_look(path, wait_s=wait_s)
        try:
            with explained(path):
                version = check_ours(self._db, path)
                if version < VERSION:
                    raise older_schema(path, version)
                self._db.execute("BEGIN")
        except BaseException:
            self._db.close()
            raise


def older_schema(path: Path, version: int) -> StoreError:
    """Return the error of looking at a database that has to be migrated first."""
    if version == 0:
        return StoreError(f"{path} is empty: there are no runs in it", hint="grpo-practice init")
    return StoreError(
        f"the database {path} is of an older schema ({version}, this one knows {VERSION}), and"
        " looking at it changes nothing",
        hint="grpo-practice runs list brings it up to date, and keeps a copy beside it",
    )
