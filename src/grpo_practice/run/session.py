"""A session (one invocation on a database), and the runs that are open in it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from grpo_practice.core.calls import Chat
from grpo_practice.core.errors import PausedError, StoppedError
from grpo_practice.core.events import (
    CallFinished,
    Emit,
    Event,
    Notice,
    RunFinished,
    RunStarted,
    reason,
    tee,
)
from grpo_practice.core.played import PlayedRollout
from grpo_practice.core.types import PlannedStep, Sample, Verdict
from grpo_practice.llm.admission import Admission
from grpo_practice.rollout.play import Verify
from grpo_practice.store import Store
from grpo_practice.store.batch_log import SqlBatchLog, awaited
from grpo_practice.store.ledger import SqlLedger
from grpo_practice.store.records import Branch, RunSpec, StepRow
from grpo_practice.store.store import Planner

if TYPE_CHECKING:
    from grpo_practice.reports.run_reports import Invocation


@dataclass(slots=True)
class StepStop:
    """Request, made by the first signal, to stop after the current step."""

    signal: int | None = None

    def check(self) -> None:
        """Raise StoppedError if a signal was received."""
        if self.signal is not None:
            raise StoppedError(self.signal)


@dataclass(frozen=True, slots=True)
class Session:
    """One invocation that works on runs."""

    store: Store
    emit: Emit
    command: str
    """Command as typed, or the Python call, without secrets; stored with the run."""
    verbose: bool = False
    """Whether notices also name config keys that have no effect."""
    restart_step: int | None = None
    again: bool = False
    admission: Admission = field(default_factory=Admission)
    """Gate that the requests of all runs must pass."""
    announcements: dict[str, str] = field(default_factory=dict)
    """Notices to emit before the first request, each with its key for `announced`, or ''; shared
    by a run and its evaluations.
    """
    announced: Callable[[str], None] = field(default=lambda key: None)
    """Function that remembers that a notice was emitted."""
    step_stop: StepStop | None = None
    """Request to stop after a step that cannot be resumed midway; None stops immediately."""

    @property
    def only_looks(self) -> bool:
        """Whether this is a forecast, which may not run code named in the configuration."""
        return self.store.mode == "foresee"

    def notice(self, text: str) -> None:
        """Emit a notice for the user."""
        self.emit(Notice(text))

    def announce(self) -> None:
        """Emit, once, the notices about keys and hosts; call it before anything is sent or run."""
        while self.announcements:
            text = next(iter(self.announcements))
            self.notice(text)
            if key := self.announcements.pop(text):
                self.announced(key)


@dataclass(slots=True)
class Meter:
    """Event sink that counts the calls of one invocation that the ledger answered."""

    replayed: int = 0
    started: float = field(default_factory=monotonic)

    def record(self, event: Event) -> None:
        """Count an event."""
        self.replayed += isinstance(event, CallFinished) and event.replayed


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that this process may write: its branch, its ledger, and a meter for its events."""

    branch: Branch
    ledger: SqlLedger
    invocation_id: int
    meter: Meter
    emit: Emit
    batch_log: SqlBatchLog
    rows: Sequence[StepRow] = ()
    """Steps of the run when it was opened."""

    def notice(self, text: str) -> None:
        """Emit a notice for the user, as an event of this run."""
        self.emit(Notice(text))

    @property
    def invocation(self) -> "Invocation":
        """Totals of this invocation so far."""
        from grpo_practice.reports.run_reports import Invocation

        seconds = monotonic() - self.meter.started
        return Invocation(self.invocation_id, self.meter.replayed, seconds)


class PilotOverError(PausedError):
    """Raised when a pilot has finished; the run stays open."""

    exit_code = 0

    def __init__(self) -> None:
        super().__init__("the pilot is over")


Planned = tuple[Sequence[PlannedStep], Sequence[str]]
"""The steps that a branch should have, and notices."""
Plan = Callable[[Branch, Sequence[StepRow]], Planned]
"""Function that plans a branch, given the steps that it has."""


@contextmanager
def open_run(session: Session, spec: RunSpec, plan: Plan) -> Iterator[OpenRun]:
    """Open one run; see `open_runs`."""
    with open_runs(session, [(spec, plan)]) as (run,):
        yield run


@contextmanager
def open_runs(session: Session, wanted: Sequence[tuple[RunSpec, Plan]]) -> Iterator[list[OpenRun]]:
    """Lock the runs, begin or resume each, plan its steps, and record the invocation.

    The planner returns the steps that the branch should have. If the planner raises, no run has
    been changed. The store may call the planner twice.

    Raises:
        LockedError: Another process is working on one of the runs.
        FingerprintError: A run was begun with a different identity.
        GrpoPracticeError: The command was stopped; the error gives the reason.
    """
    store, said = session.store, dict[str, Sequence[str]]()

    def planner(plan: Plan) -> Planner:
        def steps(branch: Branch, rows: Sequence[StepRow]) -> Sequence[PlannedStep]:
            # Assign by name instead of appending, because the store may call this twice.
            planned, said[branch.run] = plan(branch, rows)
            return planned

        return steps

    with ExitStack() as stack:
        # Lock all runs before changing one. Do not wait for a lock, so that two commands with the
        # same runs in a different order cannot block each other.
        for spec, _ in wanted:
            stack.enter_context(store.lock(spec.name))
        for spec, _ in wanted:
            end_dead_invocations(session, spec.name)
        begun = store.begin_all(
            [(spec, planner(plan)) for spec, plan in wanted],
            restart_step=session.restart_step,
            again=session.again,
        )
        opened = list[OpenRun]()
        for (spec, _), branch in zip(wanted, begun, strict=True):
            for text in [*branch.notices, *said[branch.run]]:
                session.notice(text)
            begins_anew = session.restart_step is not None or session.again
            if begins_anew and (waits := store.read(awaited).get(spec.name)):
                session.notice(f"in a batch that is billed, even if it is not used: {waits.text}")
            # Keys outside the identity may change; the next command should find their new values.
            store.renew_config(branch, spec)
            opened.append(stack.enter_context(_worked_on(session, spec, branch)))
        yield opened


def foreseen(session: Session, spec: RunSpec, plan: Plan) -> tuple[Branch, list[StepRow]]:
    """Return the branch and steps that `open_run` would work on, and emit its notices.

    Raises: The errors of `open_run`, except for locks.
    """
    branch, rows = session.store.foresee(
        spec,
        lambda branch, rows: plan(branch, rows)[0],
        restart_step=session.restart_step,
        again=session.again,
    )
    for text in branch.notices:
        session.notice(text)
    return branch, rows


def end_dead_invocations(session: Session, run: str) -> None:
    """End invocations that died while the run was open; the caller must hold the run's lock."""
    for who in session.store.close_dead(run):
        session.notice(
            f"the earlier command on {run} ({who}) did not end cleanly; its saved results are used"
        )


@contextmanager
def _worked_on(session: Session, spec: RunSpec, branch: Branch) -> Iterator[OpenRun]:
    """Record the work on the run, and its outcome."""
    meter = Meter()
    with session.store.invocation(
        branch, session.command, addresses=spec.addresses
    ) as invocation_id:
        ledger = session.store.ledger(branch, invocation_id)
        try:
            emit, log = tee(meter.record, session.emit), session.store.batch_log(branch)
            yield OpenRun(branch, ledger, invocation_id, meter, emit, log)
        except asyncio.CancelledError:
            if session.admission.stopped is None:
                raise
            # Raise inside the invocation's block, so that its row records the reason.
            raise session.admission.stopped from None
        for why, count in ledger.unused.items():
            session.notice(f"{spec.name}: {count} stored answers could not be used: {why}")


@contextmanager
def announced(session: Session, begun: RunStarted) -> Iterator[None]:
    """Emit `RunStarted`, and emit `RunFinished` however the block ends."""
    session.emit(begun)
    error: BaseException | None = None
    try:
        yield
    except BaseException as e:
        if isinstance(e, asyncio.CancelledError):  # a cap or a signal is the actual reason
            error = session.admission.stopped or e
        elif not isinstance(e, PilotOverError):  # a finished pilot is not a failure
            error = e
        raise
    finally:
        session.emit(RunFinished(begun.run, reason(error) if error else None))


def to_the_end(session: Session, verify: Verify) -> Verify:
    """Return a verify function whose current call may finish when the command is stopped."""

    async def scored(
        sample: Sample, response: str, judge: Chat, rollout: PlayedRollout | None
    ) -> Verdict:
        with session.admission.finishing():
            return await verify(sample, response, judge, rollout)

    return scored
