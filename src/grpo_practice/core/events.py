"""Progress events: a union of plain values and one synchronous `emit`.

Because `emit` runs in the task that does the work, a tracing sink can attach a context at a
`…Started` event, and the context applies to the calls inside. The store is not a sink: losing a row
must stop a run, whereas losing a line on the screen must not.

The event about a stored row is emitted first, with no `await` before the row is queued. A row is
written even if the task that waits for it is cancelled, so an event emitted after the wait could be
lost. Thus each stored call, tool call and rollout has one `…Finished`, even in a cancelled run.

Each `CallStarted` and `RolloutStarted` is followed by its `…Finished`, or by `Aborted` if an error
or a cancellation ends it and nothing is stored. Each `RunStarted` is followed by `RunFinished`. A
step has no such end: an unfinished step stays open, and a later command starts it again.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from grpo_practice.core.calls import Address, Usage
from grpo_practice.core.types import Outcome, Rollout

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A command begins or resumes the work of a run."""

    run: str
    branch: int
    steps: int
    rollouts: int
    """Number of rollouts planned over all steps."""
    done: int
    """Number of these rollouts that are already stored and not played again."""
    simulated: bool = False
    beside: bool = False
    """Whether the run is played concurrently with the run that the command began before it."""
    evaluations: int = 0
    """Rollouts of the evaluations during this run, which begin later as runs of their own. If the
    library was evaluated before, its evaluation counts here but plays nothing.
    """


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A command ends its work on a run, for whatever reason."""

    run: str
    error: str | None = None
    """Reason for ending early; None if all requested work is done."""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step begins; events of its early groups may have been emitted before."""

    step: int
    epoch: int
    groups: int
    rollouts: int
    experiences: int | None
    """Number of experiences in the step's library; None in a training run, which has no library."""
    done: int = 0
    """Number of rollouts that were already settled."""


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A model call begins; the ledger or the endpoint will answer it."""

    address: Address
    model: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The endpoint or the ledger answered a model call."""

    address: Address
    model: str
    usage: Usage
    seconds: float
    replayed: bool


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool returned a result, or the ledger returned a stored result."""

    address: Address
    name: str
    seconds: float
    replayed: bool


@dataclass(frozen=True, slots=True)
class RolloutStarted:
    """One attempt begins, or a stored attempt is scored again."""

    run: str
    step: int
    slot: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ScoringStarted:
    """The answer of one attempt is passed to the verify function."""

    address: Address


@dataclass(frozen=True, slots=True)
class ScoringFinished:
    """The verify function judged an answer, failed, or was cancelled."""

    address: Address


@dataclass(frozen=True, slots=True)
class RolloutFinished:
    """One attempt ended, with or without success."""

    run: str
    step: int
    slot: int
    attempt: int
    outcome: Outcome
    reward: float | None
    error: str | None = None
    stored: bool = False
    """True for a rollout that an earlier command settled: it had no `RolloutStarted` and is already
    counted in `done`.
    """
    reason: str | None = None
    """Reason for an outcome of `limit` or `error`; see `Trajectory`."""

    @classmethod
    def from_rollout(cls, run: str, step: int, rollout: Rollout, *, stored: bool = False) -> Self:
        """Return the event for a rollout."""
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
            played.reason,
        )


@dataclass(frozen=True, slots=True)
class Aborted:
    """An error or a cancellation ended the started call or rollout; nothing is stored for it."""

    started: CallStarted | RolloutStarted
    error: str


@dataclass(frozen=True, slots=True)
class GroupFinished:
    """All attempts of a group are scored, so it is known whether the group teaches."""

    step: int
    slot: int
    informative: bool


@dataclass(frozen=True, slots=True)
class GroupDistilled:
    """An informative group was distilled into proposals, or the distillation failed."""

    step: int
    slot: int
    lessons: int
    operations: int
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class GroupStored:
    """All calls and rollouts of a group, distillation included, are stored or queued for storage.

    Code that reads them on another connection must flush the store first.
    """

    run: str
    step: int
    slot: int
    """Position of the group; -1 for the step's merge."""


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A practice step is closed and its library saved."""

    step: int
    mean_reward: float | None
    informative: int
    experiences: int
    failed: str | None = None
    """Reason why the merge failed, which leaves the library unchanged."""


@dataclass(frozen=True, slots=True)
class WeightsUpdated:
    """A step of a training run is closed: its rollouts have changed the weights."""

    step: int
    mean_reward: float | None
    informative: int
    loss: float
    kl: float | None
    """Mean divergence from the base model; None if it is not measured."""
    seconds: float


@dataclass(frozen=True, slots=True)
class RetryWaits:
    """A request got no usable answer and is retried after a wait."""

    host: str
    """Host and port that failed to answer."""
    status: int | None
    """HTTP status; None if the connection failed."""
    seconds: float
    """Wait before the next try."""
    asked: bool
    """Whether the endpoint asked for the wait, which then applies to all requests to it."""
    timed_out_s: float | None = None
    """Deadline that ended the try, which may still be billed; None if something else ended it."""


@dataclass(frozen=True, slots=True)
class BatchWaits:
    """Requests in a batch wait for its end, which a later event with the same name reports."""

    name: str
    what: str | None
    """Description of the batch; None if the wait is over."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for a person to read, emitted once."""

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
    | BatchWaits
    | Notice
)
Emit = Callable[[Event], None]


def silent(event: Event) -> None:
    """Drop the event."""


def tee(*sinks: Emit) -> Emit:
    """Send each event to every sink, in order.

    If a sink raises, the error is logged; the other sinks and the run continue.
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
    """Emit the event, and `Aborted` if the block raises; the caller emits the `…Finished`."""
    emit(event)
    try:
        yield
    except BaseException as e:
        # Also for a cancellation: sinks that count work in flight need an end for each start.
        emit(Aborted(event, reason(e)))
        raise


def reason(error: BaseException) -> str:
    """Return an error as one sentence."""
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
