"""The numbers of a command under way, kept up to date by events."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from grpo_practice.calls import Address, Usage
from grpo_practice.events import (
    Aborted,
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
from grpo_practice.stages import STAGES
from grpo_practice.text import similar

MOST_KINDS = 100
"""Kinds of failures that are told apart; all others count as one."""
LONGEST = 1_000
"""Characters of an error that are kept, and by which errors are alike."""


@dataclass(slots=True)
class FailureKind:
    """Failed rollouts that count as one kind: the same reason, and errors that are alike."""

    reason: str
    """Reason, or the outcome of a rollout that has no reason."""
    error: str
    """Text of the first error of this kind."""
    count: int = 0


@dataclass(slots=True)
class Part:
    """The rollouts of a command, of one step, or of an evaluation on the way."""

    name: str = ""
    planned: int = 0
    done: int = 0
    """Rollouts that ended, well or badly, now or in an earlier command."""
    failed: int = 0
    """Ended rollouts without a reward."""
    played: int = 0
    """Ended rollouts that this command played."""
    replayed: int = 0
    """Played rollouts that asked only the ledger."""
    weight: float = 0.0
    """Sum of the weights of the rewards that were seen."""
    total: float = 0.0
    """Weighted sum of these rewards."""
    groups: int = 0
    informative: int = 0
    distilled: int = 0
    undistilled: int = 0
    """Groups that taught nothing because the teacher failed."""

    @property
    def mean(self) -> float | None:
        """Mean reward of the rollouts that were seen."""
        return self.total / self.weight if self.weight else None

    @property
    def tenth(self) -> int:
        """How many tenths of the plan are done."""
        return 10 * self.done // self.planned if self.planned else 10

    def see(self, event: RolloutFinished, *, replayed: bool = False) -> None:
        """Count a rollout."""
        self.done += not event.stored
        self.played += not event.stored
        self.replayed += replayed
        if event.reward is None:
            self.failed += 1
        else:
            self.weight += event.weight
            self.total += event.weight * event.reward


@dataclass(slots=True)
class Tally:
    """State of a command: how far it is, what is under way, and what has failed.

    A run that starts inside another one is an evaluation on its way. Runs that are worked on
    together count as one.
    """

    clock: Callable[[], float] = monotonic
    run: RunStarted | None = None
    """The run that the command works on."""
    whole: Part = field(default_factory=Part)
    """All that the command works on: its run, those beside it, evaluations on the way."""
    part: Part = field(init=False)
    """Part that is played now: a step, an evaluation on the way, or the whole."""
    inside: bool = False
    """True while an evaluation on the way plays."""
    beside: int = 0
    """Number of the other runs that are worked on together with the run."""
    step: StepStarted | None = None
    step_open: bool = False
    """True from a step's start until it is closed."""
    failures: dict[tuple[str, str], FailureKind] = field(default_factory=dict)
    """Reason and shape of the error → failed rollouts of all that the command works on."""
    usage: Usage = field(default_factory=lambda: Usage(0, 0, 0, 0, 0))
    """Usage of the new requests; unknown once one is answered without a count, and 0 before."""
    new: int = 0
    """Requests that the endpoint answered."""
    replayed: int = 0
    """Requests that the ledger answered."""
    tools: int = 0
    """New calls of tools."""
    rollouts: int = 0
    """Rollouts that have begun and not ended, including those being scored."""
    scoring: int = 0
    timed_out: Counter[float] = field(default_factory=Counter)
    """Deadline in seconds → tries that were given up at it, and made again."""
    _most_rollouts: int = 0
    """Most rollouts that were under way at once."""
    _retries: list[tuple[float, RetryWaits]] = field(default_factory=list)
    """Waits before another try, with the times at which they end."""
    _calls: dict[Address, list[float]] = field(default_factory=dict)
    """Address → the times at which its model calls under way began."""
    _arrived: float = 0.0
    """Time at which a model call last ended."""
    _steps: dict[int, Part] = field(default_factory=dict)
    """Step → its part. Groups of a step may be played before it begins."""
    _branches: dict[str, int] = field(default_factory=dict)
    """Run → its branch."""
    _asked: dict[tuple[int, int, int, int], bool] = field(default_factory=dict)
    """Branch, step, slot and attempt of a rollout under way → whether a request of it was new."""
    _expected: int = 0
    """Rollouts of evaluations on the way that have not begun."""
    _share: float = 0.0
    _started: float = 0.0

    def __post_init__(self) -> None:
        self.part = self.whole

    @property
    def trains(self) -> bool:
        """Whether the run changes weights: nobody is asked, and nothing distilled."""
        return self.step is not None and self.step.experiences is None

    @property
    def left_s(self) -> float | None:
        """Seconds until all rollouts of the command are played; None while nobody can know."""
        whole = self.whole
        # What only the ledger answered took no time: counted in, it would promise too much.
        new = whole.played - whole.replayed
        # The first wave alone tells how long one rollout takes, and not how many end in a second.
        if not new or whole.played < self._most_rollouts:
            return None
        return (self.clock() - self._started) / new * max(whole.planned - whole.done, 0)

    @property
    def share(self) -> float:
        """Share of the command's rollouts that are done; it never falls."""
        if self.run is not None:
            done = self.whole.done / self.whole.planned if self.whole.planned else 1.0
            self._share = max(self._share, min(done, 1.0))
        return self._share

    @property
    def retries(self) -> list[tuple[float, RetryWaits]]:
        """The waits that are not over, with the times at which they end."""
        now = self.clock()
        return [(until, wait) for until, wait in self._retries if until > now]

    @property
    def teacher(self) -> list[Address]:
        """Address of each request to the teacher that is under way."""
        # Copied at once: the display has a thread of its own, and these change while it looks.
        calls = list(self._calls.items())
        return [at for at, began in calls if STAGES[at.stage].role == "teacher" for _ in began]

    def silence(self) -> tuple[float, list[float]]:
        """Return the seconds for which model calls have been under way and none has ended.

        Returns:
            The seconds, 0 if no call is under way; and the seconds that each call has taken.
        """
        began = [at for times in list(self._calls.values()) for at in times]
        now = self.clock()
        quiet_s = now - max(self._arrived, min(began)) if began else 0.0
        return quiet_s, [now - at for at in began]

    def see(self, event: Event) -> None:
        """Take an event into account."""
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
                if began := self._calls.pop(address, [])[1:]:
                    self._calls[address] = began
            case RetryWaits():
                if event.timed_out_s is not None:
                    self.timed_out[event.timed_out_s] += 1
                self._retries = [*self.retries, (self.clock() + event.seconds, event)]
            case _:
                pass

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
            known = min(self._expected, event.rollouts)
            self._expected -= known
            self._add(event.rollouts - known, event.done)

    def _add(self, planned: int, done: int) -> None:
        """Count rollouts that nothing has announced, and some that are done already."""
        self.whole.planned += planned
        self.whole.done += done

    def _step_started(self, event: StepStarted) -> None:
        self.step, self.inside, self.step_open = event, False, True
        self._add(-event.spared, 0)
        self.part = self._of_step(event.step)
        self.part.planned = event.rollouts
        self.part.done += event.done

    def _of_step(self, step: int) -> Part:
        return self._steps.setdefault(step, Part(f"step {step}"))

    def _rollout(self, event: RolloutFinished) -> None:
        key = (self._branches.get(event.run, 0), event.step, event.slot, event.attempt)
        self.whole.see(event, replayed=not self._asked.pop(key, True))
        if self.run is not None and event.run == self.run.run:
            self._of_step(event.step).see(event)
        elif self.part is not self.whole:
            self.part.see(event)
        if event.reward is None:
            self._failed(event.reason or event.outcome, event.error or event.outcome)

    def _failed(self, reason: str, error: str) -> None:
        key = (reason, similar(error[:LONGEST]))
        if key not in self.failures and len(self.failures) >= MOST_KINDS:
            key, reason = ("others", ""), "others"
            error = "too many different errors to tell them apart"
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
