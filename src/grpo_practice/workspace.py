"""The public Python API: a database of runs, datasets and experiences, and what is done with it."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from grpo_practice.app.database_file import DatabaseFile
from grpo_practice.events import Emit, silent, tee

if TYPE_CHECKING:
    from grpo_practice.app.any_config import AnyConfig
    from grpo_practice.app.datasets import Datasets
    from grpo_practice.app.evaluation_run import EvalJob
    from grpo_practice.app.options import EvalOptions as EvalOptions
    from grpo_practice.app.options import PracticeOptions as PracticeOptions
    from grpo_practice.app.practice_run import PracticeJob
    from grpo_practice.app.request import ConfigInput
    from grpo_practice.app.serving import Served as Served
    from grpo_practice.app.session import Session
    from grpo_practice.export.formats import Exported, Format
    from grpo_practice.forecast.estimate import Forecast as Forecast
    from grpo_practice.forecast.estimate import Line as Line
    from grpo_practice.forecast.range import Range as Range
    from grpo_practice.reports.database import DatabaseCheck, DatabaseCopy
    from grpo_practice.reports.experience_reports import ExperienceReport, LibraryReport
    from grpo_practice.reports.rollout_report import RolloutReport
    from grpo_practice.reports.run_reports import EvalReport, PracticeReport
    from grpo_practice.reports.stored_runs import RunReport, RunsReport
    from grpo_practice.store import Store
    from grpo_practice.store.queries.spending import Piloted as Piloted

T = TypeVar("T")
Job = TypeVar("Job")
Options = TypeVar("Options")

PORT = 8400
"""Port to serve at where none is given."""


class Workspace(DatabaseFile):
    """A database, and what is done with it; also a context manager, sync or async.

    Each call opens the file and closes it again, so that a workspace may be kept for as long as
    one likes, and be used by several threads, event loops and processes.

    Args:
        path: SQLite file; made by the first call that writes.
        command: Command to put on record for runs; None names the method that was called.
        signals: Whether a blocking call stops in order at SIGINT, SIGTERM or SIGHUP and raises
            StoppedError. Only for a program's main thread; else Ctrl-C is a KeyboardInterrupt.
    """

    # Data and configuration

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

    # Practice and evaluation

    def evaluate(
        self, config: "ConfigInput | None" = None, **options: "Unpack[EvalOptions]"
    ) -> "EvalReport":
        """Evaluate an agent on a dataset; what is stored is not asked again.

        It works inside a running event loop, too: a notebook's.

        Args:
            config: File, name in ./configs, mapping or typed config; None goes on with the latest
                run, or takes all from the options.
            options: See `EvalOptions`.

        Raises:
            GrpoPracticeError: The evaluation could not be completed; all that was answered is
                stored, and the same call goes on from there.
        """
        from grpo_practice.app.evaluation_run import run_eval
        from grpo_practice.app.options import eval_job

        with self._job(eval_job, config, options) as job:
            return self._wait(job.session, run_eval(job))

    async def evaluate_async(
        self, config: "ConfigInput | None" = None, **options: "Unpack[EvalOptions]"
    ) -> "EvalReport":
        """Do what `evaluate` does, on the loop that is running. Cancel it to stop it."""
        from grpo_practice.app.clients import load_client
        from grpo_practice.app.evaluation_run import run_eval
        from grpo_practice.app.options import eval_job

        with self._job(eval_job, config, options) as job:
            await asyncio.to_thread(load_client)
            return await run_eval(job)

    def practise(
        self, config: "ConfigInput | None" = None, **options: "Unpack[PracticeOptions]"
    ) -> "PracticeReport":
        """Let an agent practise; a run goes on where it stopped, and pays nothing twice.

        Args:
            config: File, name in ./configs, mapping or typed config; None goes on with the latest
                practice run.
            options: See `PracticeOptions`.

        Raises:
            GrpoPracticeError: The run could not be completed; as `evaluate`.
        """
        from grpo_practice.app.options import practice_job
        from grpo_practice.app.practice_run import run_practice

        with self._job(practice_job, config, options) as job:
            return self._wait(job.session, run_practice(job))

    async def practise_async(
        self, config: "ConfigInput | None" = None, **options: "Unpack[PracticeOptions]"
    ) -> "PracticeReport":
        """Do what `practise` does, on the loop that is running. Cancel it to stop it."""
        from grpo_practice.app.clients import load_client
        from grpo_practice.app.options import practice_job
        from grpo_practice.app.practice_run import run_practice

        with self._job(practice_job, config, options) as job:
            await asyncio.to_thread(load_client)
            return await run_practice(job)

    def forecast_evaluation(
        self,
        config: "ConfigInput | None" = None,
        *,
        pilot: int | None = None,
        **options: "Unpack[EvalOptions]",
    ) -> "Forecast":
        """Return what `evaluate` with these arguments has left to do and to pay.

        Args:
            config: As for `evaluate`.
            pilot: Questions to ask first, and to keep, for a better forecast; None asks nothing
                and writes nothing.
            options: See `EvalOptions`.
        """
        from grpo_practice.app.options import eval_job

        with self._job(eval_job, config, options, scratch=pilot is None) as job:
            return self._forecast(job, pilot)

    def forecast_practice(
        self,
        config: "ConfigInput | None" = None,
        *,
        pilot: int | None = None,
        **options: "Unpack[PracticeOptions]",
    ) -> "Forecast":
        """Return what `practise` with these arguments has left to do and to pay.

        Args:
            config: As for `practise`.
            pilot: Groups of the next step to play first, and to keep; None plays nothing and
                writes nothing.
            options: See `PracticeOptions`.
        """
        from grpo_practice.app.options import practice_job

        with self._job(practice_job, config, options, scratch=pilot is None) as job:
            return self._forecast(job, pilot)

    def _forecast(self, job: "PracticeJob | EvalJob", pilot: int | None) -> "Forecast":
        if pilot is not None:
            from grpo_practice.pilot import run_pilot

            return self._wait(job.session, run_pilot(job, pilot))
        from grpo_practice.forecast.remaining_calls import forecast

        return forecast(job)

    @contextmanager
    def _job(
        self,
        prepare: "Callable[[Store, ConfigInput | None, Options, str | None], Job]",
        config: "ConfigInput | None",
        options: Options,
        *,
        scratch: bool = False,
    ) -> Iterator[Job]:
        with self._store(create=True, scratch=scratch) as store:
            yield prepare(store, config, options, self._command)

    def _wait(self, session: "Session", work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work, wherever this is called."""
        from grpo_practice.app.blocking import run_blocking
        from grpo_practice.app.clients import load_client
        from grpo_practice.app.shutdown import run_until_stopped

        if self._signals:
            return run_until_stopped(session, work)
        load_client()
        return run_blocking(work)

    # Export and serving

    def export(
        self,
        run: str | None = None,
        step: str | int = "last",
        *,
        format: "Format | None" = None,
        output: str | Path | None = None,
        force: bool = False,
    ) -> "Exported":
        """Return the agent with what it learnt as a text, and write it to a file if one is named.

        Args:
            run: `RUN`, `RUN@BRANCH`, `RUN:STEP` or `L12`; None: the latest practice run.
            step: `last`, `best`, or the number of a closed step.
            format: None: by the file's name.
            output: File to write.
            force: Whether to replace the file.

        Raises:
            ConfigError: There is no such library, or the file cannot be written.
        """
        from grpo_practice.app.agent_export import export_agent
        from grpo_practice.export.files import write_file
        from grpo_practice.export.formats import Exported, format_of

        path = None if output is None else Path(output)
        format = format or format_of(path)
        with self._store() as store:
            text = export_agent(store, run, str(step), format)
        if path is not None:
            write_file(path, text, force=force)
        return Exported(text, format)

    def serve(
        self,
        agent: str | Path,
        *,
        port: int = PORT,
        record: str | None = None,
        on_ready: "Callable[[Served], None]" = lambda _: None,
        on_event: Emit = silent,
    ) -> None:
        """Serve an agent as `serve_async` does, until Ctrl-C."""
        work = self.serve_async(
            agent, port=port, record=record, on_ready=on_ready, on_event=on_event
        )
        with suppress(KeyboardInterrupt):
            asyncio.run(work)

    async def serve_async(
        self,
        agent: str | Path,
        *,
        port: int = PORT,
        record: str | None = None,
        on_ready: "Callable[[Served], None]" = lambda _: None,
        on_event: Emit = silent,
    ) -> None:
        """Serve an agent's file as an OpenAI-compatible endpoint, until the task is cancelled.

        Args:
            agent: File, as `export` writes it.
            port: 0 takes any free one.
            record: Run to keep all that passes in.
            on_ready: Called once requests are answered.
            on_event: Told what a person should know.

        Raises:
            ConfigError: The agent, the port, or the name of the run cannot be used.
        """
        from grpo_practice.app.serving import serve_agent

        command = self._command or f"{self!r}.serve({str(agent)!r})"
        with ExitStack() as stack:
            store = stack.enter_context(self._store(create=True)) if record is not None else None
            to = None if store is None or record is None else (store, record, command)
            await serve_agent(Path(agent), port, to, on_ready=on_ready, emit=tee(on_event))
