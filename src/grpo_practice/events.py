"""Progress, as one union of plain values and one synchronous `emit`.

Because `emit` runs in the task that does the work, a tracing sink can attach a context at a
`…Started` and it holds for the calls inside. The store is not a sink: losing a row must stop a
run, losing a line on the screen must not.

The event of something stored is emitted first, with no `await` before its row is queued: a row is
written though whoever waits for it is cancelled, and an event that came after would be lost. So
there is one `…Finished` for each stored call, tool call and rollout, also in a run that is
cancelled.

Each `CallStarted` and `RolloutStarted` is followed by its `…Finished`, or by `Aborted` if an error
or a cancellation ends it and nothing is stored. Each `RunStarted` is followed by `RunFinished`. A
step has no such end: one that is not finished stays open, and a later command starts it again.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from grpo_practice.calls import Address, Usage
from grpo_practice.types import Outcome, Rollout

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A command begins, or goes on with, the work of a run."""

    run: str
    branch: int
    steps: int
    rollouts: int
    """Planned over all steps."""
    done: int
    """Rollouts among these that are stored already, and not played again."""
    simulated: bool = False
    beside: bool = False
    """Whether it is worked on together with the run that the command began before."""
    evaluations: int = 0
    """Rollouts of the evaluations on its way, which begin later as runs of their own. An
    evaluation of a library that was evaluated before counts here, and plays nothing."""


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A command ends its work on a run, whatever the reason."""

    run: str
    error: str | None = None
    """Why it ended early; None when all that was asked for is done."""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step begins; events of its early groups may have come before."""

    step: int
    epoch: int
    groups: int
    rollouts: int
    experiences: int | None
    """In the library it is played with; None in a training run, which has none."""
    done: int = 0
    """Rollouts settled before."""
    spared: int = 0
    """Rollouts that were planned until now, and are left out."""


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A model is called; the ledger or the endpoint will answer."""

    address: Address
    model: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A model call was answered, by the endpoint or by the ledger."""

    address: Address
    model: str
    usage: Usage
    seconds: float
    replayed: bool


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool gave a result, or the ledger had it."""

    address: Address
    name: str
    seconds: float
    replayed: bool


@dataclass(frozen=True, slots=True)
class RolloutStarted:
    """One attempt begins, or one that is stored is scored again."""

    run: str
    step: int
    slot: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ScoringStarted:
    """The answer of one attempt goes to the verify function."""

    address: Address


@dataclass(frozen=True, slots=True)
class ScoringFinished:
    """The verify function has judged an answer, or failed, or was cancelled."""

    address: Address


@dataclass(frozen=True, slots=True)
class RolloutFinished:
    """One attempt ended, well or badly."""

    run: str
    step: int
    slot: int
    attempt: int
    outcome: Outcome
    reward: float | None
    error: str | None = None
    stored: bool = False
    """True for one that an earlier command settled: no `RolloutStarted` came before it, and it is
    counted in `done` already."""
    weight: float = 1.0
    """How often its reward counts in a mean: it may stand for groups that are left out."""
    reason: str | None = None
    """Reason for an outcome of `limit` or `error`, as `Trajectory` has it."""

    @classmethod
    def from_rollout(
        cls, run: str, step: int, rollout: Rollout, *, stored: bool = False, weight: float = 1.0
    ) -> Self:
        """Return the event of a rollout."""
        played = rollout.played
        return cls(
            run,
            step,
            rollout.slot,
            rollout.attempt,
            played.outcome,
            rollout.reward,
            played.error,
            stored,
            weight,
            played.reason,
        )


@dataclass(frozen=True, slots=True)
class Aborted:
    """An error or a cancellation ended what was started; nothing of it is stored."""

    started: CallStarted | RolloutStarted
    error: str


@dataclass(frozen=True, slots=True)
class GroupFinished:
    """All attempts of a group are scored, and it is known whether it teaches."""

    step: int
    slot: int
    informative: bool


@dataclass(frozen=True, slots=True)
class GroupDistilled:
    """An informative group became proposals, or failed to."""

    step: int
    slot: int
    lessons: int
    operations: int
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class GroupStored:
    """All calls and rollouts of a group, distillation included, are stored or queued to be.

    Whoever reads them on another connection flushes the store first.
    """

    run: str
    step: int
    slot: int
    """Place of the group; -1 for the step's merge."""


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A practice step is closed and its library saved."""

    step: int
    mean_reward: float | None
    informative: int
    experiences: int
    failed: str | None = None
    """Why the merge failed; the library is then unchanged."""


@dataclass(frozen=True, slots=True)
class WeightsUpdated:
    """A step of a training run is closed: its rollouts have changed the weights."""

    step: int
    mean_reward: float | None
    informative: int
    loss: float
    kl: float | None
    """Mean divergence from the base model; None where nothing measures it."""
    seconds: float


@dataclass(frozen=True, slots=True)
class RetryWaits:
    """A request got no usable answer, and is sent again after a wait."""

    host: str
    """Host and port that gave none."""
    status: int | None
    """HTTP status; None where the connection failed."""
    seconds: float
    """Wait before the next try."""
    asked: bool
    """Whether the endpoint asked for the wait; then every request to it waits."""
    timed_out_s: float | None = None
    """Deadline at which the try was given up, perhaps billed; None if something else ended it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence that a person should read, emitted once."""

    text: str


Event = (
    RunStarted
    | RunFinished
    | StepStarted
    | CallStarted
    | CallFinished
    | ToolFinished
    | RolloutStarted
    | ScoringStarted
    | ScoringFinished
    | RolloutFinished
    | Aborted
    | GroupFinished
    | GroupDistilled
    | GroupStored
    | StepFinished
    | WeightsUpdated
    | RetryWaits
    | Notice
)
Emit = Callable[[Event], None]


def silent(event: Event) -> None:
    """Drop the event."""


def tee(*sinks: Emit) -> Emit:
    """Send each event to every sink, in order.

    A sink that raises is logged, and stops neither the other sinks nor the run.
    """

    def emit(event: Event) -> None:
        for sink in sinks:
            try:
                sink(event)
            except Exception:  # noqa: BLE001 - a line lost on the screen must not cost a run
                _log.warning("a sink failed at %s", type(event).__name__, exc_info=True)

    return emit


@contextmanager
def span(emit: Emit, event: CallStarted | RolloutStarted) -> Iterator[None]:
    """Emit the event, and `Aborted` where the block raises; the block's caller emits the rest."""
    emit(event)
    try:
        yield
    except BaseException as e:
        # For a cancellation, too: whoever counts what is under way needs an end for each start.
        emit(Aborted(event, reason(e)))
        raise


def reason(error: BaseException) -> str:
    """Return an error as one sentence."""
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
