"""The public Python API: a database of runs, datasets and experiences, and what is done with it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from grpo_practice.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.app.any_config import AnyConfig
    from grpo_practice.app.datasets import Datasets
    from grpo_practice.reports.database import DatabaseCheck, DatabaseCopy
    from grpo_practice.reports.experience_reports import ExperienceReport, LibraryReport
    from grpo_practice.reports.rollout_report import RolloutReport
    from grpo_practice.reports.stored_runs import RunReport, RunsReport
    from grpo_practice.store import Store

DATABASE = "grpo-practice.db"
"""Name of the database where none is given."""


class Workspace:
    """A database, and what is done with it; also a context manager, sync or async.

    Each call opens the file and closes it again, so that a workspace may be kept for as long as
    one likes, and be used by several threads, event loops and processes.

    Args:
        path: SQLite file; made by the first call that writes.
        command: Command to put on record for runs; None names the method that was called.
        signals: Whether a blocking call stops in order at SIGINT, SIGTERM or SIGHUP and raises
            StoppedError. Only for a program's main thread; else Ctrl-C is a KeyboardInterrupt.
    """

    def __init__(
        self, path: str | Path = DATABASE, *, command: str | None = None, signals: bool = False
    ) -> None:
        self.path = Path(path)
        self._command, self._signals, self._closed = command, signals, False

    @override
    def __repr__(self) -> str:
        return f"Workspace({str(self.path)!r})"

    @property
    def datasets(self) -> "Datasets":
        """The datasets of this database."""
        from grpo_practice.app.datasets import Datasets

        return Datasets(self._store)

    def load_config(self, name: str | None = None, overrides: Sequence[str] = ()) -> "AnyConfig":
        """Load the configuration called `name`; without one, that of the latest run.

        Raises:
            ConfigError: There is none, or it cannot be used.
        """
        import os

        from grpo_practice.app.any_config import load_config
        from grpo_practice.config import read_environment

        return load_config(name, overrides, read_environment(os.environ), self._store)

    def backup(self, target: str | Path | None = None, *, replace: bool = False) -> "DatabaseCopy":
        """Copy the database as it is now, also while a run writes to it.

        Args:
            target: File to make (default: the database's name + .bak).
            replace: Whether it may be there already.

        Raises:
            ConfigError: There is no database, or the copy may not have this name.
            StoreError: The database is damaged, or the copy cannot be written.
        """
        from grpo_practice.app.database import backup_database

        return backup_database(self.path, Path(target) if target else None, replace=replace)

    def check(self) -> "DatabaseCheck":
        """Look whether the database is whole; nothing is changed, and runs may go on.

        Raises:
            ConfigError: There is no database.
            StoreError: It is not ours, or cannot be opened at all.
        """
        from grpo_practice.app.database import check_database

        return check_database(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Refuse further calls; everything of earlier ones is on disk already."""
        self._closed = True

    # Stored runs

    def runs(self) -> "RunsReport":
        """Return all runs, the oldest first."""
        from grpo_practice.reports.stored_runs import RunsReport
        from grpo_practice.store import runs

        with self._store() as store:
            return RunsReport(store.read(runs.every))

    def run(self, name: str) -> "RunReport":
        """Return the steps, scores and costs of a run.

        Raises:
            ConfigError: There is no such run.
        """
        from grpo_practice.reports.stored_runs import run_report

        with self._store() as store:
            return run_report(store, name)

    def delete_run(self, name: str) -> list[str]:
        """Delete a run and the evaluations that it made, and return their names.

        Raises:
            ConfigError: There is no such run.
            LockedError: Somebody works on it.
        """
        with self._store() as store, store.lock(name):
            return store.delete_run(name)

    def rollouts(self, run: str, *, step: int | None = None) -> "Iterator[RolloutReport]":
        """Yield the rollouts of a run with their transcripts, read as they are asked for.

        Args:
            run: Name of the run.
            step: The only step to read; None reads all.

        Raises:
            ConfigError: There is no such run.
        """
        from grpo_practice.app.rollouts import rollouts_of

        with self._store() as store:
            yield from rollouts_of(store, run, step)

    # Experiences

    def experiences(
        self, run: str | None = None, step: str | int = "last", *, quarantined: bool = False
    ) -> "LibraryReport":
        """Return the experiences of a library, with the evidence on each.

        Args:
            run: `RUN`, `RUN@BRANCH`, `RUN:STEP` or `L12`; None: the latest practice run.
            step: `last`, `best`, or the number of a closed step.
            quarantined: Whether to return also what was kept out, and why.

        Raises:
            ConfigError: There is no such library.
        """
        from grpo_practice.app.libraries import library_report

        with self._store() as store:
            return library_report(store, run, str(step), quarantined=quarantined)

    def experience(self, name: str, run: str | None = None) -> "ExperienceReport":
        """Return where the experience `E12` of a run comes from.

        Raises:
            ConfigError: There is no such run, or never was such an experience in it.
        """
        from grpo_practice.app.libraries import experience_report

        with self._store() as store:
            return experience_report(store, name, run)

    @contextmanager
    def _store(self, *, create: bool = False, scratch: bool = False) -> "Iterator[Store]":
        """Open the database for one call.

        Args:
            create: Make the file where there is none.
            scratch: Open a copy instead, which is gone afterwards.

        Raises:
            ConfigError: There is no such file, or the workspace is closed.
            StoreError: The file cannot be used.
        """
        # Imported here, as everything below is by the method that needs it: `import grpo_practice`
        # and `grpo-practice --help` must not wait for what a run needs.
        from grpo_practice.store import Store
        from grpo_practice.store.scratch_copy import rehearsal

        if self._closed:
            raise ConfigError(f"{self!r} is closed", hint="open another one")
        if not (create or scratch or self.path.exists()):
            raise ConfigError(
                f"there is no database {self.path} yet",
                hint="name another with --db, or begin: grpo-practice data upload FILE --name NAME",
            )
        with rehearsal(self.path) if scratch else Store(self.path) as store:
            yield store
