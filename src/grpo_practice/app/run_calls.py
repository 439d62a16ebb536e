"""Calls that open a run on a database: prepared, then waited for."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from grpo_practice.app.database_file import DatabaseFile
from grpo_practice.events import silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_practice.app.options import RunOptions
    from grpo_practice.app.session import Session

T = TypeVar("T")
Job = TypeVar("Job")
Options = TypeVar("Options")
Given = TypeVar("Given")


class RunCalls(DatabaseFile):
    """How `Workspace` prepares a run, and waits for it; a base of it."""

    @contextmanager
    def _job(
        self,
        prepare: "Callable[..., Job]",
        given: Given,
        options: Options,
        *,
        foresee: bool = False,
    ) -> Iterator[Job]:
        if foresee:
            with self._store("foresee") as store:
                yield prepare(store, given, options, self._command)
            return
        if not self.path.exists():
            # A request that cannot be prepared leaves no empty database behind.
            quiet = cast("Options", {**cast("Mapping[str, Any]", options), "on_event": silent})
            with self._store("foresee") as store:
                prepare(store, given, quiet, self._command)
        with self._store(create=True) as store:
            from grpo_practice.app.options import tracing_of
            from grpo_practice.telemetry.tracer import traced

            wanted = cast("dict[str, Any]", options)
            tracing, sink = tracing_of(cast("RunOptions", options)), wanted.get("on_event", silent)
            # Inside the store's block: when this one ends, all that is traced is still there.
            with traced(store, tracing, sink, wanted.get("env")) as emit:
                told = cast("Options", {**wanted, "on_event": emit})
                yield prepare(store, given, told, self._command)

    def _wait(self, session: "Session", work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work, wherever this is called."""
        from grpo_practice.app.blocking import run_blocking
        from grpo_practice.app.shutdown import run_until_stopped

        if self._signals:
            return run_until_stopped(session, work)
        return run_blocking(work)
