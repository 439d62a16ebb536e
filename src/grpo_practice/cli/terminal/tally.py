"""Counts and state of a running command, updated by events."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from grpo_practice.core.calls import Address, Usage
from grpo_practice.core.events import (
    Aborted,
    BatchWaits,
    CallFinished,
    CallStarted,
    Event,
    GroupDistilled,
    GroupFinished,
    GroupStored,
    Notice,
    RetryWaits,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    RunStarted,
    ScoringFinished,
    ScoringStarted,
    StepFinished,
    StepStarted,
    ToolFinished,
    WeightsUpdated,
)
from grpo_practice.core.stages import STAGES
from grpo_practice.core.text import similar

MOST_KINDS = 100
"""Maximum number of distinct failure kinds; all others count as one kind."""
LONGEST = 1_000
"""Maximum length of an error that is stored and compared."""


@dataclass(slots=True)
class FailureKind:
    """A kind of failed rollouts: the same reason and similar errors."""

    reason: str
    """Reason of the failure, or the outcome if there is no reason."""
    error: str
    """Text of the first error of this kind."""
    count: int = 0


@dataclass(slots=True)
class Part:
    """The rollouts of a command, of one step, or of an evaluation inside a run."""

    name: str = ""
    planned: int = 0
    done: int = 0
    """Rollouts that ended, successfully or not, now or in an earlier command."""
    failed: int = 0
    """Ended rollouts without a reward."""
    played: int = 0
    """Ended rollouts that this command played."""
    replayed: int = 0
    """Played rollouts whose requests were all answered from the ledger."""
    scored: int = 0
    """Rollouts with a reward so far."""
    total: float = 0.0
    """Sum of the rewards so far."""
    groups: int = 0
    informative: int = 0
    distilled: int = 0
    undistilled: int = 0
    """Groups without lessons because the teacher failed."""

    @property
    def mean(self) -> float | None:
        """Mean reward of the rollouts so far."""
        return self.total / self.scored if self.scored else None

    @property
    def tenth(self) -> int:
        """Number of completed tenths of the plan."""
        return 10 * self.done // self.planned if self.planned else 10

    def record(self, event: RolloutFinished, *, replayed: bool = False) -> None:
        """Count a rollout."""
        self.done += not event.stored
        self.played += not event.stored
        self.replayed += replayed
        if event.reward is None:
            self.failed += 1
        else:
            self.scored += 1
            self.total += event.reward


@dataclass(slots=True)
class Tally:
    """State of a command: its progress, its current activity, and its failures.

    A run that starts inside another run is an evaluation of it. Runs that are played together count
    as one.
    """

    clock: Callable[[], float] = monotonic
    run: RunStarted | None = None
    """Main run of the command."""
    whole: Part = field(default_factory=Part)
    """All rollouts of the command: its run, runs played alongside it, and evaluations inside it."""
    part: Part = field(init=False)
    """Part being played: a step, an evaluation inside the run, or the whole."""
    inside: bool = False
    """Whether an evaluation inside the run is being played."""
    beside: int = 0
    """Number of other runs that are played together with the run."""
    step: StepStarted | None = None
    step_open: bool = False
    """Whether a step has started and not yet closed."""
    failures: dict[tuple[str, str], FailureKind] = field(default_factory=dict)
    """Reason and shape of the error → failed rollouts of the whole command."""
    usage: Usage = field(default_factory=lambda: Usage(0, 0, 0, 0, 0))
    """Usage of new requests; 0 before the first, and unknown after a reply without token counts."""
    new: int = 0
    """Number of requests that the endpoint answered."""
    replayed: int = 0
    """Number of requests that the ledger answered."""
    tools: int = 0
    """Number of new tool calls."""
    rollouts: int = 0
    """Rollouts that have started and not ended, including rollouts being scored."""
    scoring: int = 0
    batches: dict[str, str | None] = field(default_factory=dict)
    """Name of each batch → its description; None if nothing waits for it any more."""
    timed_out: Counter[float] = field(default_factory=Counter)
    """Deadline in seconds → number of attempts that reached it and were retried."""
    _most_rollouts: int = 0
    """Maximum number of rollouts that were in flight together."""
    _retries: list[tuple[float, RetryWaits]] = field(default_factory=list)
    """Waits before a retry, with their end times."""
    _calls: dict[Address, list[float]] = field(default_factory=dict)
    """Address → start times of its model calls in flight."""
    _arrived: float = 0.0
    """Time at which the last model call ended."""
    _steps: dict[int, Part] = field(default_factory=dict)
    """Step → its part. Groups of a step may be played before the step starts."""
    _branches: dict[str, int] = field(default_factory=dict)
    """Run → its branch."""
    _asked: dict[tuple[int, int, int, int], bool] = field(default_factory=dict)
    """Branch, step, slot and attempt of a rollout in flight → whether it sent a new request."""
    _expected: int = 0
    """Announced rollouts of evaluations inside the run that have not started."""
    _share: float = 0.0
    _started: float = 0.0

    def __post_init__(self) -> None:
        self.part = self.whole

    @property
    def trains(self) -> bool:
        """Whether the run trains weights: no endpoint is called and nothing is distilled."""
        return self.step is not None and self.step.experiences is None

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until all rollouts of the command are played; None if unknown."""
        if self.awaited:
            return None
        # The first wave shows how long one rollout takes, but not how many end per second.
        return None if self.whole.played < self._most_rollouts else self.most_left_s

    @property
    def most_left_s(self) -> float | None:
        """Seconds until then if the server plays one rollout after the other; None if unknown.

        After the first wave, the time per rollout reflects how many it plays together.
        """
        whole = self.whole
        if self.awaited:
            return None
        # Replayed rollouts take no time, so counting them would make the estimate too optimistic.
        new = whole.played - whole.replayed
        if not new:
            return None
        return (self.clock() - self._started) / new * max(whole.planned - whole.done, 0)

    @property
    def awaited(self) -> list[str]:
        """Descriptions of the batches that requests wait for."""
        return [what for what in self.batches.values() if what is not None]

    @property
    def share(self) -> float:
        """Share of the command's rollouts that are done; it never decreases."""
        if self.run is not None:
            done = self.whole.done / self.whole.planned if self.whole.planned else 1.0
            self._share = max(self._share, min(done, 1.0))
        return self._share

    @property
    def retries(self) -> list[tuple[float, RetryWaits]]:
        """Waits that have not ended, with their end times."""
        now = self.clock()
        return [(until, wait) for until, wait in self._retries if until > now]

    @property
    def teacher(self) -> list[Address]:
        """Address of each teacher request in flight."""
        # Copy first, because this runs in the display's thread while the run changes the dict.
        calls = list(self._calls.items())
        return [at for at, began in calls if STAGES[at.stage].role == "teacher" for _ in began]

    def silence(self) -> tuple[float, list[float]]:
        """Return how long model calls have been in flight without any reply.

        Returns:
            The seconds without a reply, 0 if no call is in flight, or if calls wait for a batch;
            and the duration of each call.
        """
        if self.awaited:
            return 0.0, []
        began = [at for times in list(self._calls.values()) for at in times]
        now = self.clock()
        quiet_s = now - max(self._arrived, min(began)) if began else 0.0
        return quiet_s, [now - at for at in began]

    def record(self, event: Event) -> None:
        """Update the tally by an event."""
        self._under_way(event)
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
                part = self._of_step(event.step)
                part.groups += 1
                part.informative += event.informative
            case GroupDistilled():
                part = self._of_step(event.step)
                part.distilled += event.failed is None
                part.undistilled += event.failed is not None
            case ToolFinished():
                self.tools += not event.replayed
            case StepFinished() | WeightsUpdated():
                self.step_open = False
            case (
                CallStarted()
                | RolloutStarted()
                | GroupStored()
                | ScoringStarted()
                | ScoringFinished()
                | RetryWaits()
                | BatchWaits()
                | Aborted()
                | RunFinished()
                | Notice()
            ):
                pass

    def _under_way(self, event: Event) -> None:
        match event:
            case RolloutStarted():
                self.rollouts += 1
                self._most_rollouts = max(self._most_rollouts, self.rollouts)
            case RolloutFinished(stored=False) | Aborted(started=RolloutStarted()):
                self.rollouts -= 1
            case ScoringStarted():
                self.scoring += 1
            case ScoringFinished():
                self.scoring -= 1
            case CallStarted(address=address):
                self._calls.setdefault(address, []).append(self.clock())
            case CallFinished(address=address) | Aborted(started=CallStarted(address=address)):
                self._arrived = self.clock()
                # Several calls may share an address, so the end of one removes the oldest start.
                if began := self._calls.pop(address, [])[1:]:
                    self._calls[address] = began
            case RetryWaits():
                self._retry(event)
            case BatchWaits():
                self.batches = {**self.batches, event.name: event.what}
            case _:
                pass

    def _retry(self, event: RetryWaits) -> None:
        if event.timed_out_s is not None:
            self.timed_out[event.timed_out_s] += 1
        self._retries = [*self.retries, (self.clock() + event.seconds, event)]

    def _run_started(self, event: RunStarted) -> None:
        self._branches[event.run] = event.branch
        if self.run is None:
            self.run, self._expected, self._started = event, event.evaluations, self.clock()
            self._add(event.rollouts + event.evaluations, event.done)
        elif event.beside:
            self.beside += 1
            self._add(event.rollouts, event.done)
        else:
            self.inside = True
            self.part = Part(event.run, event.rollouts, event.done)
            # The run announced these rollouts already; counting them again would lower the share.
            known = min(self._expected, event.rollouts)
            self._expected -= known
            self._add(event.rollouts - known, event.done)

    def _add(self, planned: int, done: int) -> None:
        """Add rollouts that no event announced; some of them may already be done."""
        self.whole.planned += planned
        self.whole.done += done

    def _step_started(self, event: StepStarted) -> None:
        self.step, self.inside, self.step_open = event, False, True
        self.part = self._of_step(event.step)
        self.part.planned = event.rollouts
        self.part.done += event.done

    def _of_step(self, step: int) -> Part:
        return self._steps.setdefault(step, Part(f"step {step}"))

    def _rollout(self, event: RolloutFinished) -> None:
        key = (self._branches.get(event.run, 0), event.step, event.slot, event.attempt)
        self.whole.record(event, replayed=not self._asked.pop(key, True))
        if self.run is not None and event.run == self.run.run:
            self._of_step(event.step).record(event)
        elif self.part is not self.whole:
            self.part.record(event)
        if event.reward is None:
            self._failed(event.reason or event.outcome, event.error or event.outcome)

    def _failed(self, reason: str, error: str) -> None:
        key = (reason, similar(error[:LONGEST]))
        # Bounds the memory of a run in which every error has a different text.
        if key not in self.failures and len(self.failures) >= MOST_KINDS:
            key, reason = ("others", ""), "others"
            error = "too many different errors to list"
        self.failures.setdefault(key, FailureKind(reason, error[:LONGEST])).count += 1

    def _call(self, event: CallFinished) -> None:
        at = event.address
        if STAGES[at.stage].role != "teacher":
            key = (at.branch_id, at.step, at.slot, at.attempt)
            self._asked[key] = self._asked.get(key, False) or not event.replayed
        if event.replayed:
            self.replayed += 1
            return
        self.usage = self.usage + event.usage if self.new else event.usage
        self.new += 1
