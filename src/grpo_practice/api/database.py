"""A database file that is opened for each call.

This module imports little, because `import grpo_practice` loads it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from grpo_practice.core.errors import ConfigError, StoreError
from grpo_practice.core.redact import environment_secrets, redactor

if TYPE_CHECKING:
    from grpo_practice.store import Store
    from grpo_practice.store.open_store import Mode

DATABASE = "grpo-practice.db"
"""Default name of the database file."""
IN_MEMORY = ":memory:"
"""SQLite's name for an in-memory database."""


class DatabaseFile:
    """A database named by its path; the base class of `Workspace`."""

    def __init__(
        self, path: str | Path = DATABASE, *, command: str | None = None, signals: bool = False
    ) -> None:
        # Everything that is stored or raised is redacted, so the redactor has to know the secrets
        # before the first call.
        redactor.know(environment_secrets(os.environ))
        if str(path) == IN_MEMORY:
            # A workspace reopens the file for each call, which would lose a database in memory.
            raise ConfigError(
                f"{path} is not a file, so each connection would have its own database",
                hint="name a file with --db; `--dry-run` keeps nothing",
            )
        if str(path) == "-":
            raise ConfigError("a database cannot be read from stdin", hint="name a file with --db")
        self.path = Path(path)
        self._command, self._signals, self._closed = command, signals, False

    @override
    def __repr__(self) -> str:
        return f"Workspace({str(self.path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse further calls. The results of earlier calls are already on disk."""
        self._closed = True

    def damage_behind(self, error: Exception) -> StoreError | None:
        """Return an error about a damaged database if the damage could have caused `error`."""
        from grpo_practice.store.check import damage_behind

        return damage_behind(self.path, error) if self.path.exists() else None

    @contextmanager
    def _store(self, mode: "Mode" = "write", *, create: bool = False) -> "Iterator[Store]":
        """Open the database for one call.

        Args:
            mode: See `Mode`.
            create: Whether to create the file if it is missing.

        Raises:
            ConfigError: The file is missing, or the workspace is closed.
            StoreError: The file cannot be used.
        """
        # Imported here, like the imports of all methods of the API, so that `import grpo_practice`
        # and `grpo-practice --help` do not wait for modules that only runs need.
        from grpo_practice.store import Store
        from grpo_practice.store.check import damage_explained

        self._check_usable(made=not (create or mode == "foresee"))
        opened = Store(self.path, mode)
        with damage_explained(self.path), opened as store:
            yield store

    def _check_usable(self, *, made: bool) -> None:
        """Raise ConfigError if the workspace is closed, or if `made` is set but no file exists."""
        if self._closed:
            raise ConfigError(f"{self!r} is closed", hint="open another one")
        if made and not self.path.exists():
            from grpo_practice.data.catalog import first_dataset

            raise ConfigError(
                f"there is no database {self.path} yet",
                hint=f"name another with --db, or start with: {first_dataset()}",
            )
