"""Methods of `Workspace` that play and forecast evaluations and practice runs."""

import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from grpo_practice.api.database import DatabaseFile
from grpo_practice.core.errors import ConfigError
from grpo_practice.run.requests.base import PilotedRequest, RunRequest
from grpo_practice.run.requests.runs import ArmsRequest, EvalRequest, PracticeRequest

if TYPE_CHECKING:
    from grpo_practice.core.events import Emit
    from grpo_practice.reports.comparison import ComparisonReport
    from grpo_practice.reports.run_reports import EvalReport, PracticeReport
    from grpo_practice.run.arms import ArmsJob
    from grpo_practice.run.evaluation_run import EvalJob
    from grpo_practice.run.forecast.estimate import Forecast
    from grpo_practice.run.practice_run import PracticeJob
    from grpo_practice.run.session import Session
    from grpo_practice.store import Store


class Prepared(Protocol):
    """A prepared run: everything that it names has been found and checked."""

    @property
    def session(self) -> "Session":
        """Session in which the run is played."""
        ...


P = ParamSpec("P")
Asked = TypeVar("Asked", bound=RunRequest)
Job = TypeVar("Job", bound=Prepared)
Forecastable = TypeVar("Forecastable", "PracticeJob", "EvalJob", "ArmsJob")
W = TypeVar("W")
T = TypeVar("T")


def takes(
    kind: Callable[P, Asked],
) -> Callable[[Callable[[W, Asked], T]], Callable[Concatenate[W, P], T]]:
    """Return a decorator that lets a method take the fields of its request as keywords."""

    def decorated(method: Callable[[W, Asked], T]) -> Callable[Concatenate[W, P], T]:
        def asked(*args: P.args, **fields: P.kwargs) -> Asked:
            try:
                return kind(*args, **fields)
            except TypeError as e:  # unknown keyword: name the method, not `__init__`
                raise TypeError(re.sub(r"\w+\.__init__", method.__name__, str(e))) from None

        @wraps(method)
        def called(workspace: W, /, *args: P.args, **fields: P.kwargs) -> T:
            return method(workspace, asked(*args, **fields))

        @wraps(method)
        async def awaited(workspace: W, /, *args: P.args, **fields: P.kwargs) -> Any:
            return await cast("Any", method(workspace, asked(*args, **fields)))

        # `help()` and editors show the fields of the request instead of `*args, **fields`.
        found = awaited if iscoroutinefunction(method) else called
        me = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [me, *signature(kind).parameters.values()]
        found.__dict__["__signature__"] = signature(method).replace(parameters=parameters)
        return cast("Callable[Concatenate[W, P], T]", found)

    return decorated


class PlayedRuns(DatabaseFile):
    """Methods that prepare the requested run and wait until it has finished."""

    @takes(EvalRequest)
    def evaluate(self, request: EvalRequest) -> "EvalReport":
        """Evaluate an agent on a dataset; requests with stored answers are not sent again.

        Without a config, this call resumes the latest run, or builds the evaluation from the other
        arguments if they suffice.

        Raises:
            GrpoPracticeError: The run could not be completed. All answers so far are stored, and
                the same call continues from there.
        """
        from grpo_practice.run.evaluation_run import prepare_eval, run_eval

        return self._complete(request, prepare_eval, run_eval)

    @takes(EvalRequest)
    async def evaluate_async(self, request: EvalRequest) -> "EvalReport":
        """Evaluate as `evaluate` does, on the running event loop. Cancel the task to stop."""
        from grpo_practice.run.evaluation_run import prepare_eval, run_eval

        with self._job(request, prepare_eval) as job:
            return await run_eval(job)

    @takes(ArmsRequest)
    def evaluate_arms(self, request: ArmsRequest) -> "ComparisonReport":
        """Evaluate an agent with and without its learnt experiences, played together, and compare.

        Takes two or more arms: `none`, `full` (the library), `aa` (`full` with another seed),
        `direct` (a library that the teacher wrote without practice), `filler` (experiences about
        other topics), libraries (`L12`), and library or agent files. Each arm is stored as the same
        run that `evaluate` would create, and a complete arm is not played again unless `again` is
        set. Arms name the agents and libraries, so there is no separate argument for them.

        Raises:
            GrpoPracticeError: The run could not be completed. All answers so far are stored, and
                the same call continues from there.
        """
        from grpo_practice.run.arms import prepare_arms, run_arms

        return self._complete(request, prepare_arms, run_arms)

    @takes(ArmsRequest)
    async def evaluate_arms_async(self, request: ArmsRequest) -> "ComparisonReport":
        """Evaluate as `evaluate_arms` does, on the running event loop. Cancel the task to stop."""
        from grpo_practice.run.arms import prepare_arms, run_arms

        with self._job(request, prepare_arms) as job:
            return await run_arms(job)

    @takes(PracticeRequest)
    def practise(self, request: PracticeRequest) -> "PracticeReport":
        """Let an agent practise; a stopped run resumes without paying for anything twice.

        Without a config, this call resumes the latest practice run; if there is no such run, it
        uses practice.yaml in the current folder.

        Raises:
            GrpoPracticeError: The run could not be completed. All answers so far are stored, and
                the same call continues from there.
        """
        from grpo_practice.run.practice_run import prepare_practice, run_practice

        return self._complete(request, prepare_practice, run_practice)

    @takes(PracticeRequest)
    async def practise_async(self, request: PracticeRequest) -> "PracticeReport":
        """Practise as `practise` does, on the running event loop. Cancel the task to stop."""
        from grpo_practice.run.practice_run import prepare_practice, run_practice

        with self._job(request, prepare_practice) as job:
            return await run_practice(job)

    @takes(EvalRequest)
    def forecast_evaluation(self, request: EvalRequest) -> "Forecast":
        """Return the remaining work of `evaluate` with these arguments; see `forecast_practice`."""
        from grpo_practice.run.evaluation_run import prepare_eval

        return self._forecast(request, prepare_eval)

    @takes(ArmsRequest)
    def forecast_arms(self, request: ArmsRequest) -> "Forecast":
        """Return the remaining work and cost of `evaluate_arms`; see `forecast_practice`."""
        from grpo_practice.run.arms import prepare_arms

        return self._forecast(request, prepare_arms)

    @takes(PracticeRequest)
    def forecast_practice(self, request: PracticeRequest) -> "Forecast":
        """Return the remaining work and cost of `practise` with these arguments.

        The call sends and stores nothing, unless `pilot` sets a number of groups to play.
        """
        from grpo_practice.run.practice_run import prepare_practice

        return self._forecast(request, prepare_practice)

    def _complete(
        self,
        request: Asked,
        prepare: "Callable[[Session, Asked], Job]",
        play: Callable[[Job], Coroutine[Any, Any, T]],
    ) -> T:
        with self._job(request, prepare) as job:
            return self._wait(job.session, play(job))

    def _forecast(
        self, request: Asked, prepare: "Callable[[Session, Asked], Forecastable]"
    ) -> "Forecast":
        from grpo_practice.run.pilot import forecast_of, run_pilot

        pilot = request.pilot if isinstance(request, PilotedRequest) else None
        with self._job(request, prepare, foresee=pilot is None, pilots=True) as job:
            if pilot is None:
                return forecast_of(job)
            return self._wait(job.session, run_pilot(job, pilot))

    @contextmanager
    def _job(
        self,
        request: Asked,
        prepare: "Callable[[Session, Asked], Job]",
        *,
        foresee: bool = False,
        pilots: bool = False,
    ) -> Iterator[Job]:
        from grpo_practice.core.events import silent, tee

        if isinstance(request, PilotedRequest) and request.pilot is not None and not pilots:
            raise ConfigError(
                "this method does not accept pilot, which plays a small part of a run and"
                " forecasts the rest",
                hint="leave pilot out, or pass it to forecast_evaluation, _arms or _practice",
            )
        sink = request.on_event or silent
        if foresee:
            with self._store("foresee") as store:
                yield prepare(self._session(store, request, tee(sink)), request)
            return
        if not self.path.exists():
            # Prepare in memory first, so that a failed request leaves no empty database behind.
            with self._store("foresee") as store:
                prepare(self._session(store, request, silent), request)
        # Enter inside the store's block, so that a sink can still read the store when it closes.
        with self._store(create=True) as store, self._emitting(store, request) as emit:
            yield prepare(self._session(store, request, emit), request)

    @contextmanager
    def _emitting(self, store: "Store", request: RunRequest) -> "Iterator[Emit]":
        """Yield the event sink for a run; a slice may add its own sink."""
        from grpo_practice.core.events import silent, tee

        # Use `tee`, because an exception in a callback must not end a paid run.
        yield tee(request.on_event or silent)

    def _session(self, store: "Store", request: RunRequest, emit: "Emit") -> "Session":
        from grpo_practice.run.session import Session

        command = self._command or request.call(store.path)
        return Session(store, emit, command, request.verbose)

    def _wait(self, session: "Session", work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work, whether or not this thread already runs an event loop."""
        from grpo_practice.run.waiting import run_blocking, run_until_stopped

        if self._signals:
            return run_until_stopped(session, work)
        return run_blocking(work)
