"""Driver of all runs: tries the verify function, then opens and announces the runs."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from grpo_practice.config import Loaded
from grpo_practice.core.events import RunStarted
from grpo_practice.run.preflight import try_verify
from grpo_practice.run.session import OpenRun, Planned, Session, announced, open_runs
from grpo_practice.store import steps
from grpo_practice.store.records import Branch, DatasetRow, RunSpec, StepRow
from grpo_practice.verify.resolve import VerifyFunction


class RunJob(Protocol):
    """A prepared run: everything that it names has been found and checked."""

    @property
    def loaded(self) -> Loaded[Any]:
        """Configuration of the run."""
        ...

    @property
    def spec(self) -> RunSpec:
        """Run to be recorded."""
        ...

    @property
    def verify(self) -> VerifyFunction:
        """Function that scores answers."""
        ...

    @property
    def dataset(self) -> DatasetRow:
        """Dataset with the questions."""
        ...


J = TypeVar("J", bound=RunJob)


@asynccontextmanager
async def playing(
    session: Session,
    jobs: Sequence[J],
    planned: Callable[[J, Branch, Sequence[StepRow]], Planned],
    begun: Callable[[J, OpenRun], RunStarted],
    steps_of: Callable[[J, Branch], Sequence[StepRow]] | None = None,
) -> AsyncIterator[list[OpenRun]]:
    """Open runs that are played together; change none of them unless all can be opened.

    Args:
        session: The invocation.
        jobs: The runs.
        planned: Returns the planned steps of a run, given its existing steps.
        begun: Returns the announcement of an opened run.
        steps_of: Returns the steps of an opened run; by default, the steps of its branch and of
            that branch's ancestors.

    Raises:
        ConfigError: The verify function of the first run raises for every gold answer.
        LockedError: Another process is working on a run.
        FingerprintError: A run was begun with a different configuration.
    """
    # A run that begins here has to be resumable without naming --trust again.
    for job in jobs:
        job.loaded.remember()
    wanted = [(job.spec, partial(planned, job)) for job in jobs]
    first, (spec, _) = jobs[0], wanted[0]
    # A run started by another run uses the same verify function, which has already been tried.
    if spec.parent_run is None or spec.purpose == "rejudge":
        await try_verify(session, spec, first.verify, first.dataset)
    with open_runs(session, wanted) as opened, ExitStack() as events:
        runs, stored = list[OpenRun](), partial(session.store.read, steps.on_line)
        for job, run in zip(jobs, opened, strict=True):
            rows = steps_of(job, run.branch) if steps_of else stored(run.branch)
            runs.append(replace(run, rows=rows))
            start = replace(begun(job, runs[-1]), beside=len(runs) > 1)
            events.enter_context(announced(session, start))
        yield runs
