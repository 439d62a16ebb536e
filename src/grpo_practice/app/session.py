"""One invocation on a database, and a run of it that is open."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import monotonic

from grpo_practice.calls import Chat
from grpo_practice.errors import PausedError, StoppedError
from grpo_practice.events import (
    CallFinished,
    Emit,
    Event,
    Notice,
    RunFinished,
    RunStarted,
    reason,
    tee,
)
from grpo_practice.llm.admission import Admission
from grpo_practice.reports.run_reports import Invocation
from grpo_practice.rollout import Verify
from grpo_practice.store import Store
from grpo_practice.store.ledger import SqlLedger
from grpo_practice.store.records import Branch, RunSpec, StepRow
from grpo_practice.store.store import Planner
from grpo_practice.types import PlannedStep, Sample, Verdict


@dataclass(slots=True)
class StepStop:
    """Wish that the work ends after the step under way, as a first signal leaves it."""

    signal: int | None = None

    def check(self) -> None:
        """Raise StoppedError where a signal came."""
        if self.signal is not None:
            raise StoppedError(self.signal)


@dataclass(frozen=True, slots=True)
class Session:
    """One invocation that works on runs."""

    store: Store
    emit: Emit
    command: str
    """Command as typed, or call, without secrets: for the record."""
    verbose: bool = False
    """Whether notices also say which keys of a config have no effect."""
    restart_step: int | None = None
    again: bool = False
    admission: Admission = field(default_factory=Admission)
    """Gate that every request passes, whichever run it is for."""
    announcements: list[str] = field(default_factory=list)
    """Sentences that are not said yet, and are before the first request; one list for a run and
    its evaluations."""
    step_stop: StepStop | None = None
    """Wish to end after a step, where steps are long and half of one is lost; None ends at once."""

    @property
    def only_looks(self) -> bool:
        """Whether this is a forecast: nothing that the configuration names may be run."""
        return self.store.mode == "foresee"

    def notice(self, text: str) -> None:
        """Tell a person something."""
        self.emit(Notice(text))

    def announce(self) -> None:
        """Tell a person, once, which key goes where; call it before anything is sent or started."""
        while self.announcements:
            self.notice(self.announcements.pop(0))


@dataclass(slots=True)
class Meter:
    """Counts what one invocation asked for (an event sink)."""

    new: int = 0
    replayed: int = 0
    started: float = field(default_factory=monotonic)

    def see(self, event: Event) -> None:
        """Take an event into account."""
        if isinstance(event, CallFinished):
            if event.replayed:
                self.replayed += 1
            else:
                self.new += 1

    @property
    def seconds(self) -> float:
        """Seconds since the meter was made."""
        return monotonic() - self.started


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that this process may write: its branch, its ledger, and a meter of its events."""

    branch: Branch
    ledger: SqlLedger
    invocation_id: int
    meter: Meter
    emit: Emit
    rows: Sequence[StepRow] = ()
    """Steps of the run when it was opened."""

    def notice(self, text: str) -> None:
        """Tell a person something, as an event of this run."""
        self.emit(Notice(text))

    @property
    def invocation(self) -> Invocation:
        """Totals of this invocation up to now."""
        return Invocation(self.invocation_id, self.meter.replayed, self.meter.seconds)


class PilotOverError(PausedError):
    """A pilot has played what it was to play; the run is left open."""

    exit_code = 0

    def __init__(self) -> None:
        super().__init__("the pilot is over")


Plan = Callable[[Branch, Sequence[StepRow]], tuple[Sequence[PlannedStep], Sequence[str]]]
"""Planner: branch and the steps it has in; the steps it should have, and notices, out."""


@contextmanager
def open_run(session: Session, spec: RunSpec, plan: Plan) -> Iterator[OpenRun]:
    """Open one run; see `open_runs`."""
    with open_runs(session, [(spec, plan)]) as (run,):
        yield run


@contextmanager
def open_runs(session: Session, wanted: Sequence[tuple[RunSpec, Plan]]) -> Iterator[list[OpenRun]]:
    """Lock the runs, begin each or go on with it, plan it, and record that it is worked on.

    A plan says which steps the branch should have; it may raise, and then nothing has changed in
    any of the runs, and may be called twice.

    Raises:
        LockedError: Another process works on one of them.
        FingerprintError: One was started under another identity.
        GrpoPracticeError: Why the command was to stop, where that ended the block.
    """
    store, said = session.store, dict[str, Sequence[str]]()

    def planner(plan: Plan) -> Planner:
        def steps(branch: Branch, rows: Sequence[StepRow]) -> Sequence[PlannedStep]:
            # By name, not added: the store may call this twice.
            planned, said[branch.run] = plan(branch, rows)
            return planned

        return steps

    with ExitStack() as stack:
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
            store.renew_config(branch, spec)
            opened.append(stack.enter_context(_worked_on(session, spec, branch)))
        yield opened


def foreseen(session: Session, spec: RunSpec, plan: Plan) -> tuple[Branch, list[StepRow]]:
    """Return the branch and the steps that `open_run` would work on; its notices are given.

    Raises: what `open_run` does, but for locks.
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
    """End the invocations that died with the run open; only for the holder of its lock."""
    for who in session.store.close_dead(run):
        session.notice(
            f"the earlier command on {run} ({who}) did not end in order; what it saved is used"
        )


@contextmanager
def _worked_on(session: Session, spec: RunSpec, branch: Branch) -> Iterator[OpenRun]:
    """Record that the run is worked on, and how that ended."""
    meter = Meter()
    with session.store.invocation(
        branch, session.command, addresses=spec.addresses
    ) as invocation_id:
        ledger = session.store.ledger(branch, invocation_id)
        try:
            yield OpenRun(branch, ledger, invocation_id, meter, tee(meter.see, session.emit))
        except asyncio.CancelledError:
            if session.admission.stopped is None:
                raise
            # Inside the invocation's block, so that its row says what stopped it.
            raise session.admission.stopped from None
        for why, count in ledger.unused.items():
            session.notice(f"{spec.name}: {count} stored answers could not be used: {why}")


@contextmanager
def announced(session: Session, begun: RunStarted) -> Iterator[None]:
    """Emit `RunStarted`, and `RunFinished` however the block ends."""
    session.emit(begun)
    error: BaseException | None = None
    try:
        yield
    except BaseException as e:
        if isinstance(e, asyncio.CancelledError):  # the caps or a signal say why it was cancelled
            error = session.admission.stopped or e
        elif not isinstance(e, PilotOverError):  # a pilot has done all that was asked for
            error = e
        raise
    finally:
        session.emit(RunFinished(begun.run, reason(error) if error else None))


def to_the_end(session: Session, verify: Verify) -> Verify:
    """Return the verify function as one that a stop of the command waits for."""

    async def scored(sample: Sample, response: str, judge: Chat) -> Verdict:
        with session.admission.finishing():
            return await verify(sample, response, judge)

    return scored
