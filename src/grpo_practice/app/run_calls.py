"""Calls that open a run on a database: prepared, then waited for."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from grpo_practice.app.database_file import DatabaseFile
from grpo_practice.app.traces import trace_settings, traced
from grpo_practice.events import Emit, silent, tee

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_practice.app.session import Session

TRACING = ("trace_content", "trace_sample")
"""Options that are about the sending of traces, and not about the run."""
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
        scratch: bool = False,
    ) -> Iterator[Job]:
        shown = cast("Mapping[str, Any]", options)
        settings = trace_settings(shown)
        if not (scratch or self.path.exists()):
            # A request that cannot be prepared leaves no empty database behind.
            with self._store(scratch=True) as store:
                prepare(store, given, _untraced(shown, silent), self._command, only_looks=True)
        emit: Emit = shown.get("on_event", silent)
        with (
            self._store(create=True, scratch=scratch) as store,
            traced(store, settings, tee(emit), scratch=scratch) as sink,
        ):
            options_of_job = _untraced(shown, tee(emit, sink))
            yield prepare(store, given, options_of_job, self._command, only_looks=scratch)

    def _wait(self, session: "Session", work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work, wherever this is called."""
        from grpo_practice.app.blocking import run_blocking
        from grpo_practice.app.shutdown import run_until_stopped

        if self._signals:
            return run_until_stopped(session, work)
        return run_blocking(work)


def _untraced(options: "Mapping[str, Any]", emit: Emit) -> Any:
    """Return the options of a run alone, with this callback."""
    kept = {name: value for name, value in options.items() if name not in TRACING}
    return {**kept, "on_event": emit}
