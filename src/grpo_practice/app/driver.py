"""The one way to play runs: verify functions are tried, then the runs are opened and announced."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from grpo_practice.app.preflight import try_verify
from grpo_practice.app.session import OpenRun, Session, announced, open_runs
from grpo_practice.config import Loaded
from grpo_practice.events import RunStarted
from grpo_practice.store import steps
from grpo_practice.store.records import Branch, DatasetRow, RunSpec, StepRow
from grpo_practice.types import PlannedStep
from grpo_practice.verify.resolve import VerifyFunction


class RunJob(Protocol):
    """A run with all that it names looked up and checked, ready to play."""

    @property
    def loaded(self) -> Loaded[Any]:
        """The configuration."""
        ...

    @property
    def spec(self) -> RunSpec:
        """The run as it is recorded."""
        ...

    @property
    def verify(self) -> VerifyFunction:
        """The function that scores."""
        ...

    @property
    def dataset(self) -> DatasetRow:
        """The questions."""
        ...


J = TypeVar("J", bound=RunJob)
Planned = tuple[Sequence[PlannedStep], Sequence[str]]
"""Steps that a run should have, and notices."""


@asynccontextmanager
async def playing(
    session: Session,
    jobs: Sequence[J],
    planned: Callable[[J, Branch, Sequence[StepRow]], Planned],
    begun: Callable[[J, OpenRun], RunStarted],
    steps_of: Callable[[J, Branch], Sequence[StepRow]] | None = None,
) -> AsyncIterator[list[OpenRun]]:
    """Open runs that are played together; nothing is changed in any run unless all can be.

    Args:
        session: The invocation.
        jobs: The runs.
        planned: Returns the steps of a run, given those that it has.
        begun: Returns the announcement of a run that is open.
        steps_of: Returns the steps of a run that is open; by default those of its line.

    Raises:
        ConfigError: The verify function of the first run raises for every gold.
        LockedError: Another process works on a run.
        FingerprintError: A run was begun under another configuration.
    """
    for job in jobs:
        job.loaded.remember()
    wanted = [(job.spec, partial(planned, job)) for job in jobs]
    first, (spec, _) = jobs[0], wanted[0]
    # A run that another one makes scores as that one does, which has tried the function.
    if spec.parent_run is None or spec.purpose == "rejudge":
        await try_verify(session, spec, first.verify, first.dataset)
    with open_runs(session, wanted) as opened, ExitStack() as events:
        runs = list[OpenRun]()
        for job, run in zip(jobs, opened, strict=True):
            rows = (
                steps_of(job, run.branch)
                if steps_of
                else session.store.read(steps.on_line, run.branch)
            )
            runs.append(replace(run, rows=rows))
            start = replace(begun(job, runs[-1]), beside=len(runs) > 1)
            events.enter_context(announced(session, start))
        yield runs
