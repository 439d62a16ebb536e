"""The numbers of what is under way, kept up to date by events."""

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
    ToolStarted,
    WeightsUpdated,
)
from grpo_practice.stages import STAGES, Stage
from grpo_practice.text import similar

MOST_KINDS = 100
"""Kinds of failures that are told apart; all others count as one."""
LONGEST = 1_000
"""Characters of an error that are kept, and by which errors are alike."""


@dataclass(frozen=True, slots=True)
class FailureKind:
    """Failed rollouts that count as one kind: the same reason, and errors that are alike."""

    reason: str
    """Reason, or the outcome where there is none."""
    error: str
    """Text of the first of them."""


OTHERS = FailureKind("others", "too many different errors to tell them apart")


@dataclass(slots=True)
class Part:
    """The rollouts of a command, of a run, or of one step of it."""

    name: str
    planned: int
    done: int = 0
    """Ended, well or badly, now or in an earlier command."""
    failed: int = 0
    """Ended ones without a reward."""
    played: int = 0
    """Ended ones that this command played."""
    replayed: int = 0
    """Those of them for which only the ledger was asked."""
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
        # What only the ledger answered took no time: counted in, it would promise too much.
        new = self.played - self.replayed
        if not new:
            return None
        return (now - self.started) / new * max(self.planned - self.done, 0)

    def see(self, event: RolloutFinished, *, replayed: bool = False) -> None:
        """Take a rollout in."""
        self.done += not event.stored
        self.played += not event.stored
        self.replayed += replayed
        if event.reward is None:
            self.failed += 1
            self.error = event.error or event.outcome
        else:
            self.scored += event.weight
            self.total += event.weight * event.reward


@dataclass(slots=True)
class Activity:
    """State of what is in flight, and of what waits."""

    clock: Callable[[], float] = monotonic
    rollouts: int = 0
    """Rollouts that have begun and not ended, those being scored included."""
    most_rollouts: int = 0
    """Most of them that were under way at once."""
    scoring: int = 0
    teacher: Counter[Stage] = field(default_factory=Counter)
    """Stage → requests to the teacher that are under way."""
    teacher_step: int = 0
    """Step of the latest of these."""
    _retries: list[tuple[float, RetryWaits]] = field(default_factory=list)
    """Waits before another try, with the times at which they end."""
    timed_out: Counter[float] = field(default_factory=Counter)
    """Deadline in seconds → tries that were given up at it, and made again."""
    _calls: dict[Address, list[float]] = field(default_factory=dict)
    """Address → the times at which its model calls under way began."""
    _arrived: float = 0.0
    """Time at which a model call last ended."""

    def see(self, event: Event) -> None:
        """Take an event into account."""
        match event:
            case RolloutStarted():
                self.rollouts += 1
                self.most_rollouts = max(self.most_rollouts, self.rollouts)
            case RolloutFinished(stored=False) | Aborted(started=RolloutStarted()):
                self.rollouts -= 1
            case ScoringStarted():
                self.scoring += 1
            case ScoringFinished():
                self.scoring -= 1
            case CallStarted(address=address):
                self._asks_teacher(address, 1)
                self._calls.setdefault(address, []).append(self.clock())
            case CallFinished(address=address) | Aborted(started=CallStarted(address=address)):
                self._asks_teacher(address, -1)
                self._ended(address)
            case RetryWaits():
                if event.timed_out_s is not None:
                    self.timed_out[event.timed_out_s] += 1
                self._retries = [*self.retries(), (self.clock() + event.seconds, event)]
            case _:
                pass

    def _ended(self, address: Address) -> None:
        self._arrived = self.clock()
        if began := self._calls.pop(address, [])[1:]:
            self._calls[address] = began

    def silence(self) -> tuple[float, list[float]]:
        """Return the seconds for which model calls have been under way and none has ended.

        Returns:
            The seconds, 0 if no call is under way; and the seconds that each call has taken.
        """
        # Copied at once: the display has a thread of its own, and these change while it looks.
        began = [at for times in list(self._calls.values()) for at in times]
        now = self.clock()
        quiet_s = now - max(self._arrived, min(began)) if began else 0.0
        return quiet_s, [now - at for at in began]

    def _asks_teacher(self, address: Address, change: int) -> None:
        if STAGES[address.stage].role == "teacher":
            self.teacher[address.stage] += change
            self.teacher_step = address.step

    def retries(self) -> list[tuple[float, RetryWaits]]:
        """Return the waits that are not over, with the times at which they end."""
        now = self.clock()
        return [(until, wait) for until, wait in self._retries if until > now]


@dataclass(slots=True)
class Tally:
    """State of a display. A run that starts inside another one is an evaluation on its way.

    Runs that are worked on together count as one.
    """

    clock: Callable[[], float] = monotonic
    whole: Part | None = None
    """All that the command works on: its run, those beside it, evaluations on the way."""
    run: Part | None = None
    """The run the command works on."""
    part: Part | None = None
    """Part that is played now: a step, an evaluation on the way, or the run itself."""
    now: Activity = field(init=False)
    """State of what is in flight."""
    failures: Counter[FailureKind] = field(default_factory=Counter)
    """Failed rollouts of all that the command works on."""
    inside: bool = False
    """True while an evaluation on the way plays."""
    beside: int = 0
    """Number of the other runs that are worked on together with it."""
    simulated: bool = False
    steps: int = 0
    steps_closed: int = 0
    """By this command."""
    step: StepStarted | None = None
    step_open: bool = False
    """True from a step's start until it is closed."""
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
    _branches: dict[str, int] = field(default_factory=dict)
    """Run → its branch."""
    _asked: dict[tuple[int, int, int, int], bool] = field(default_factory=dict)
    """Branch, step, slot and attempt of a rollout under way → whether a request of it was new."""
    _expected: int = 0
    """Rollouts of evaluations on the way that have not begun."""
    _share: float = 0.0
    _kinds: dict[tuple[str, str], FailureKind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now = Activity(lambda: self.clock())

    @property
    def trains(self) -> bool:
        """Whether the run changes weights: nobody is asked, and nothing distilled."""
        return self.step is not None and self.step.experiences is None

    @property
    def left_s(self) -> float | None:
        """Seconds until all rollouts of the command are played; None while nobody can know."""
        # The first wave alone tells how long one rollout takes, and not how many end in a second.
        if self.whole is None or self.whole.played < self.now.most_rollouts:
            return None
        return self.whole.left_s(self.clock())

    @property
    def share(self) -> float:
        """Share of the command's rollouts that are done; it never falls."""
        if self.whole is not None:
            done = self.whole.done / self.whole.planned if self.whole.planned else 1.0
            self._share = max(self._share, min(done, 1.0))
        return self._share

    def see(self, event: Event) -> None:
        """Take an event into account."""
        self.now.see(event)
        if isinstance(event, RolloutFinished):
            replayed = self._is_replay(event)
            if self.whole is not None:
                self.whole.see(event, replayed=replayed)
            if event.reward is None:
                self._failed(event)
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
            case StepFinished() | WeightsUpdated():
                self.steps_closed += 1
                self.step_open = False
            case (
                CallStarted()
                | ToolStarted()
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

    def _call(self, event: CallFinished) -> None:
        at = event.address
        key = (at.branch_id, at.step, at.slot, at.attempt)
        if STAGES[at.stage].role != "teacher":
            self._asked[key] = self._asked.get(key, False) or not event.replayed
        if event.replayed:
            self.replayed += 1
            return
        self.usage = self.usage + event.usage if self.new else event.usage
        self.new += 1

    def _is_replay(self, event: RolloutFinished) -> bool:
        """Return True where the ledger alone was asked for the rollout, which has ended."""
        key = (self._branches.get(event.run, 0), event.step, event.slot, event.attempt)
        return not self._asked.pop(key, True)

    def _failed(self, event: RolloutFinished) -> None:
        reason = event.reason or event.outcome
        error = (event.error or event.outcome)[:LONGEST]
        key = (reason, similar(error))
        if key not in self._kinds and len(self._kinds) < MOST_KINDS:
            self._kinds[key] = FailureKind(reason, error)
        self.failures[self._kinds.get(key, OTHERS)] += 1

    def _run_started(self, event: RunStarted) -> None:
        self._branches[event.run] = event.branch
        if event.beside and self.run is not None:
            self.beside += 1
            self.run.planned += event.rollouts
            self.run.done += event.done
            self._add(event.rollouts, event.done)
            return
        part = Part(event.run, event.rollouts, done=event.done, started=self.clock())
        self.inside = self.run is not None
        if self.run is None:
            self.run, self.steps, self.simulated = part, event.steps, event.simulated
            self._expected = event.evaluations
            planned = event.rollouts + event.evaluations
            self.whole = Part(event.run, planned, event.done, started=part.started)
        else:
            known = min(self._expected, event.rollouts)
            self._expected -= known
            self._add(event.rollouts - known, event.done)
        self.part = part

    def _add(self, planned: int, done: int) -> None:
        """Count rollouts that nothing has announced, and some that are done already."""
        if self.whole is not None:
            self.whole.planned += planned
            self.whole.done += done

    def _step_started(self, event: StepStarted) -> None:
        self.step, self.inside, self.step_open = event, False, True
        self.groups = self.informative = self.distilled = self.undistilled = 0
        if self.run is not None:
            self.run.planned -= event.spared
            self._add(-event.spared, 0)
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
