"""What every command that runs something has at hand, and how it is told what happened."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from grpo_practice.calls import Chat
from grpo_practice.errors import PausedError
from grpo_practice.events import Emit, Notice, RunFinished, RunStarted, reason, tee
from grpo_practice.llm.admission import Admission
from grpo_practice.progress import Meter
from grpo_practice.reports.run_reports import Invocation
from grpo_practice.rollout import Verify
from grpo_practice.store import Store
from grpo_practice.store.ledger import SqlLedger
from grpo_practice.store.records import Branch, RunSpec, StepRow
from grpo_practice.types import PlannedStep, Sample, Verdict


@dataclass(frozen=True, slots=True)
class Session:
    """One invocation of a command that works on runs."""

    store: Store
    emit: Emit
    command: str
    """As typed, without secrets: for the record."""
    restart_step: int | None = None
    again: bool = False
    admission: Admission = field(default_factory=Admission)
    """What every request of the command has to pass, whichever run it is for."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that this process may write: its branch, its ledger, and a meter on its events."""

    branch: Branch
    ledger: SqlLedger
    invocation_id: int
    meter: Meter
    emit: Emit

    @property
    def invocation(self) -> Invocation:
        """What this command has asked for up to now."""
        return Invocation(self.invocation_id, self.meter.replayed, self.meter.seconds)


class PilotOverError(PausedError):
    """A pilot has played what it was to play; the run is left open."""

    exit_code = 0

    def __init__(self) -> None:
        super().__init__("the pilot is over")


Plan = Callable[[Branch, Sequence[StepRow]], tuple[Sequence[PlannedStep], Sequence[str]]]
"""From a branch and the steps it has: the steps it should have, and what a person should know."""


@contextmanager
def open_run(session: Session, spec: RunSpec, plan: Plan) -> Iterator[OpenRun]:
    """The run is locked, begun or gone on with, planned, and on record as being worked on.

    Args:
        session: The invocation.
        spec: What the command wants of the run.
        plan: Which steps the branch should have; may raise, and then nothing has changed. It may
            be called twice.

    Raises:
        LockedError: Another process works on it.
        FingerprintError: It was started under another identity.
        GrpoPracticeError: Why the command was to stop, where that ended the block.
    """
    store, meter, notices = session.store, Meter(), list[str]()

    def steps(branch: Branch, rows: Sequence[StepRow]) -> Sequence[PlannedStep]:
        planned, notices[:] = plan(branch, rows)
        return planned

    with store.lock(spec.name):
        for who in store.close_dead(spec.name):
            session.emit(
                Notice(
                    f"the earlier command on {spec.name} ({who}) did not end in order;"
                    " what it saved is used"
                )
            )
        branch = store.begin(spec, steps, restart_step=session.restart_step, again=session.again)
        for text in [*branch.notices, *notices]:
            session.emit(Notice(text))
        store.renew_config(branch, spec)
        with store.invocation(branch, session.command) as invocation_id:
            ledger = store.ledger(branch, invocation_id)
            try:
                yield OpenRun(branch, ledger, invocation_id, meter, tee(meter.see, session.emit))
            except asyncio.CancelledError:
                if session.admission.stopped is None:
                    raise
                raise session.admission.stopped from None
            for why, count in ledger.unused.items():
                session.emit(
                    Notice(f"{spec.name}: {count} stored answers could not be used: {why}")
                )


@contextmanager
def announced(session: Session, begun: RunStarted) -> Iterator[None]:
    """Emit `RunStarted`, and `RunFinished` however the block ends."""
    session.emit(begun)
    error: BaseException | None = None
    try:
        yield
    except BaseException as e:
        error = e
        if isinstance(e, asyncio.CancelledError):  # the caps or a signal say why it was cancelled
            error = session.admission.stopped or e
        raise
    finally:
        session.emit(RunFinished(begun.run, reason(error) if error else None))


def to_the_end(session: Session, verify: Verify) -> Verify:
    """The verify function, which a stop of the command waits for."""

    async def scored(sample: Sample, response: str, judge: Chat) -> Verdict:
        with session.admission.finishing():
            return await verify(sample, response, judge)

    return scored
