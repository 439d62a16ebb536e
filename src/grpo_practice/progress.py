"""The numbers of what is under way, kept up to date by events."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from grpo_practice.calls import Usage
from grpo_practice.events import (
    Aborted,
    CallFinished,
    CallStarted,
    Event,
    GroupDistilled,
    GroupFinished,
    GroupStored,
    Notice,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
)


@dataclass(slots=True)
class Part:
    """The rollouts of a run, or of one step of it."""

    name: str
    planned: int
    done: int = 0
    """Ended, well or badly, now or in an earlier command."""
    failed: int = 0
    """Ended ones without a reward."""
    played: int = 0
    """Ended ones that this command played."""
    scored: float = 0.0
    total: float = 0.0
    """Sum of the rewards that were seen, each as often as it counts; `scored`: how often."""
    started: float = 0.0
    error: str | None = None
    """Error of the latest failed rollout."""

    @property
    def mean(self) -> float | None:
        """Mean reward of the rollouts that were seen."""
        return self.total / self.scored if self.scored else None

    @property
    def tenth(self) -> int:
        """How many tenths of the plan are done."""
        return 10 * self.done // self.planned if self.planned else 10

    def left_s(self, now: float) -> float | None:
        """Return the seconds until all is played, at the rate so far; None at first."""
        if not self.played:
            return None
        return (now - self.started) / self.played * max(self.planned - self.done, 0)

    def see(self, event: RolloutFinished) -> None:
        """Take a rollout in."""
        self.done += not event.stored
        self.played += not event.stored
        if event.reward is None:
            self.failed += 1
            self.error = event.error or event.outcome
        else:
            self.scored += event.weight
            self.total += event.weight * event.reward


@dataclass(slots=True)
class Tally:
    """State of a display. A run that starts inside another one is an evaluation on its way.

    Runs that are worked on together count as one.
    """

    clock: Callable[[], float] = monotonic
    run: Part | None = None
    """The run the command works on."""
    part: Part | None = None
    """Part that is played now: a step, an evaluation on the way, or the run itself."""
    inside: bool = False
    """True while an evaluation on the way plays."""
    beside: int = 0
    """Number of the other runs that are worked on together with it."""
    simulated: bool = False
    steps: int = 0
    steps_closed: int = 0
    """By this command."""
    step: StepStarted | None = None
    groups: int = 0
    """Finished in this step."""
    informative: int = 0
    distilled: int = 0
    undistilled: int = 0
    """Groups that taught nothing because the teacher failed."""
    usage: Usage = field(default_factory=lambda: Usage(0, 0, 0, 0, 0))
    """Usage of the new requests; unknown once one is answered without a count, and 0 before."""
    new: int = 0
    replayed: int = 0
    tools: int = 0
    """Calls of tools that were made now."""
    _early: list[RolloutFinished | GroupFinished] = field(default_factory=list)

    @property
    def left_s(self) -> float | None:
        """Seconds until the rollouts of the run, or of the evaluation inside it, are played."""
        whole = self.part if self.inside else self.run
        return whole.left_s(self.clock()) if whole else None

    def see(self, event: Event) -> None:
        """Take an event into account."""
        if isinstance(event, RolloutFinished | GroupFinished) and self._is_early(event):
            self._early.append(event)
            return
        self._count(event)

    def _count(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._run_started(event)
            case StepStarted():
                self._step_started(event)
            case RolloutFinished():
                self._rollout(event)
            case CallFinished():
                self._call(event)
            case GroupFinished():
                self.groups += 1
                self.informative += event.informative
            case ToolFinished():
                self.tools += not event.replayed
            case GroupDistilled():
                self.distilled += event.failed is None
                self.undistilled += event.failed is not None
            case StepFinished():
                self.steps_closed += 1
            case (
                CallStarted()
                | ToolStarted()
                | RolloutStarted()
                | GroupStored()
                | Aborted()
                | RunFinished()
                | Notice()
            ):
                pass

    def _call(self, event: CallFinished) -> None:
        if event.replayed:
            self.replayed += 1
            return
        self.usage = self.usage + event.usage if self.new else event.usage
        self.new += 1

    def _run_started(self, event: RunStarted) -> None:
        if event.beside and self.run is not None:
            self.beside += 1
            self.run.planned += event.rollouts
            self.run.done += event.done
            return
        part = Part(event.run, event.rollouts, done=event.done, started=self.clock())
        self.inside = self.run is not None
        if self.run is None:
            self.run, self.steps, self.simulated = part, event.steps, event.simulated
        self.part = part

    def _step_started(self, event: StepStarted) -> None:
        self.step, self.inside = event, False
        self.groups = self.informative = self.distilled = self.undistilled = 0
        if self.run is not None:
            self.run.planned -= event.spared
        name = f"step {event.step}"
        self.part = Part(name, event.rollouts, event.done, started=self.clock())
        early, self._early = self._early, []
        for finished in early:
            self._count(finished)

    def _is_early(self, event: RolloutFinished | GroupFinished) -> bool:
        """Return True for an early group: it counts when its step begins, so that sums agree."""
        if isinstance(event, RolloutFinished) and (self.run is None or event.run != self.run.name):
            return False  # an evaluation on the way numbers its own steps
        return self.step is not None and event.step > self.step.step

    def _rollout(self, event: RolloutFinished) -> None:
        if self.part is not None:
            self.part.see(event)
        if self.run is not None and self.run is not self.part and not self.inside:
            self.run.see(event)


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
