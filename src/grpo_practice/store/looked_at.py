"""A database as it stood at one moment: for pages, which change nothing and hold nothing up."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from typing_extensions import override

from grpo_practice.store import steps
from grpo_practice.store.db import WAIT_S, check_ours, explained
from grpo_practice.store.reading import empty, open_to_look
from grpo_practice.store.records import StepRow
from grpo_practice.store.store import Store

T = TypeVar("T")


class LookedAt(Store):
    """A store that is never written, migrated or locked; all its reads are of one moment.

    Close it soon: while it is open, the log of a run that goes on cannot shrink.
    """

    def __init__(self, path: Path, *, wait_s: float = WAIT_S) -> None:
        """Open the database and begin the one transaction.

        Raises:
            StoreError: The file cannot be read, is not ours, or is empty.
        """
        # Not Store's own: that makes the file, migrates it, and begins to write.
        self.path = self._file = path
        self._lines = dict[int, list[StepRow]]()
        """Steps of the lines that were read: most of a page's time, and the same for all of it."""
        self._writes = None
        self._locks = None
        self._db = open_to_look(path, wait_s=wait_s)
        try:
            with explained(path):
                if check_ours(self._db, path, whole=False) == 0:
                    raise empty(path)
                self._db.execute("BEGIN")
        except BaseException:
            self._db.close()
            raise

    def interrupt(self) -> None:
        """End the query that another thread has under way."""
        self._db.interrupt()

    @override
    def read(self, question: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        if question is not steps.on_line:
            return super().read(question, *args, **kwargs)
        (branch,) = args
        if branch.id not in self._lines:
            self._lines[branch.id] = cast(list[StepRow], super().read(question, branch))
        return cast(T, [*self._lines[branch.id]])
