"""Progress, as one union of plain values and one synchronous `emit`.

Because `emit` runs in the task that does the work, a tracing sink can attach a context at a
`…Started` and it holds for the calls inside. The store is not a sink: losing a row must stop a
run, losing a line on the screen must not.

The event of something stored is emitted first, with no `await` before its row is queued: a row is
written though whoever waits for it is cancelled, and an event that came after would be lost.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from grpo_practice.calls import Stage, Usage
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
    """Of these, settled before: stored, and not to be played again."""
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A practice step begins."""

    step: int
    epoch: int
    groups: int
    rollouts: int
    experiences: int
    """In the library it is played with."""
    done: int = 0
    """Rollouts settled before."""
    spared: int = 0
    """Rollouts that were planned until now, and are left out."""


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A model call was answered, by the endpoint or by the ledger."""

    stage: Stage
    usage: Usage
    seconds: float
    replayed: bool


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool was called, or its result found in the ledger."""

    name: str
    seconds: float
    replayed: bool


@dataclass(frozen=True, slots=True)
class RolloutFinished:
    """One attempt ended, well or badly."""

    step: int
    slot: int
    attempt: int
    outcome: Outcome
    reward: float | None
    error: str | None = None
    stored: bool = False
    """True when it was settled before, and is counted in `done` already."""
    weight: float = 1.0
    """How often its reward counts in a mean: it may stand for groups that are left out."""

    @classmethod
    def of(
        cls,
        step: int,
        rollout: Rollout,
        *,
        stored: bool = False,
        weight: float = 1.0,
    ) -> Self:
        """The event for a rollout."""
        played = rollout.played
        return cls(
            step,
            rollout.slot,
            rollout.attempt,
            played.outcome,
            rollout.reward,
            played.error,
            stored,
            weight,
        )


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
class StepFinished:
    """A practice step is closed and its library saved."""

    step: int
    mean_reward: float | None
    informative: int
    experiences: int
    failed: str | None = None
    """Why the merge failed; the library is then unchanged."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know, said once."""

    text: str


Event = (
    RunStarted
    | StepStarted
    | CallFinished
    | ToolFinished
    | RolloutFinished
    | GroupFinished
    | GroupDistilled
    | StepFinished
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
