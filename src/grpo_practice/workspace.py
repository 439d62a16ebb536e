"""The public Python API: a database of runs, datasets and experiences, and what is done with it."""

from pathlib import Path
from types import TracebackType
from typing import Self

from grpo_practice.store import Store


class Workspace:
    """One database, open; a context manager.

    Args:
        path: The SQLite file; made where there is none.
    """

    def __init__(self, path: str | Path = "grpo-practice.db") -> None:
        self._store = Store(Path(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what is queued, and close the database."""
        self._store.close()
