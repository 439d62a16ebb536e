"""The public Python API: a database of runs, datasets and experiences, and what is done with it."""

from pathlib import Path
from types import TracebackType
from typing import Self

from grpo_practice.app.datasets import Datasets
from grpo_practice.store import Store


class Workspace:
    """One database; a context manager.

    Args:
        path: The SQLite file; made where there is none, once something needs it.
    """

    def __init__(self, path: str | Path = "grpo-practice.db") -> None:
        self.path = Path(path)
        self._opened: Store | None = None

    @property
    def datasets(self) -> Datasets:
        """The datasets of this database."""
        return Datasets(self._store)

    def _store(self) -> Store:
        # Opened late: a command that is refused, or that looks at a damaged file, makes no database
        # and brings none to a newer schema.
        if self._opened is None:
            self._opened = Store(self.path)
        return self._opened

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
        if self._opened is not None:
            self._opened.close()
