"""A terminal of any size to draw on, and what happens on it."""

import io
from collections.abc import Iterable
from threading import RLock

import pyte
from rich.console import Console
from typing_extensions import override

from grpo_practice.core.calls import Address, Usage
from grpo_practice.core.events import (
    BatchWaits,
    CallFinished,
    CallStarted,
    Event,
    GroupDistilled,
    GroupFinished,
    RetryWaits,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    ScoringStarted,
    StepFinished,
    StepStarted,
    WeightsUpdated,
)
from grpo_practice.core.stages import Stage

RUN, BRANCH = "math", 1
URL = "http://127.0.0.1:8000/v1/chat/completions"
ERRORS = (
    ("provider", f"{URL}: HTTP 503, the model is overloaded"),
    ("judge", f"{URL}: HTTP 422, the judge does not take `seed`"),
    ("agent", "ValueError: 12 is no answer to 'How many?'"),
    ("verify", "the verify function failed: division by zero"),
    ("provider", f"{URL}: the connection broke"),
)


class Screen(io.StringIO):
    """A terminal that remembers what it shows. Like xterm, it breaks no line anew."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__()
        self.screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._stream, self._lock = pyte.Stream(self.screen), RLock()

    @override
    def write(self, text: str) -> int:
        with self._lock:
            self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    @override
    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> list[str]:
        """Its lines, those that were scrolled off first; without those below the last."""
        with self._lock:
            above = [
                "".join(line[x].data for x in range(self.screen.columns)).rstrip()
                for line in self.screen.history.top
            ]
            return "\n".join([*above, *(line.rstrip() for line in self.screen.display)]).split("\n")

    def resize(self, columns: int, *, reflowing: bool) -> None:
        """Change the width; a terminal that reflows breaks its lines anew, others cut them off."""
        with self._lock:
            lines = "\r\n".join(self.shown).rstrip()
            if not reflowing:
                self.screen.resize(self.screen.lines, columns)
                return
            # What is shown, written once more: lines that are too long go on in the next row.
            self.screen = pyte.HistoryScreen(columns, self.screen.lines, history=1000)
            self._stream = pyte.Stream(self.screen)
            self._stream.feed(lines)

    def console(self) -> Console:
        return Console(
            file=self,
            force_terminal=True,
            width=self.screen.columns,
            height=self.screen.lines,
            color_system=None,
            legacy_windows=False,
            _environ={"TERM": "xterm"},
        )


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def played(
    slots: Iterable[int],
    *,
    step: int = 0,
    run: str = RUN,
    branch: int = BRANCH,
    replayed: bool = False,
) -> list[Event]:
    """Two attempts of each group, played and scored: one right, one wrong."""
    events: list[Event] = []
    for slot in slots:
        for attempt in (0, 1):
            at = Address(branch, step, slot, attempt, "play")
            events += [
                RolloutStarted(run, step, slot, attempt),
                CallStarted(at, "m"),
                CallFinished(at, "m", Usage(250, 0, 40), 1.0, replayed=replayed),
                RolloutFinished(run, step, slot, attempt, "ok", float(attempt)),
            ]
    return events


def failed(slot: int, *kinds: int, step: int = 0) -> list[Event]:
    """Attempts of a group that end with errors of these kinds."""
    events: list[Event] = []
    for attempt, kind in enumerate(kinds):
        reason, error = ERRORS[kind]
        events += [
            RolloutStarted(RUN, step, slot, attempt),
            RolloutFinished(RUN, step, slot, attempt, "error", None, error, reason=reason),
        ]
    return events


def begun(step: int = 0, *, done: int = 0) -> list[Event]:
    """A run of two steps of ten groups, with an evaluation of 20 rollouts after each."""
    start = RunStarted(RUN, BRANCH, 2, 40, done, simulated=True, evaluations=40)
    return [start, StepStarted(step, 0, groups=10, rollouts=20, experiences=3, done=done)]


def asked(stage: Stage, slot: int, step: int = 0) -> Event:
    """A request to the teacher that is under way."""
    return CallStarted(Address(BRANCH, step, slot, -1, stage), "m")


def in_flight(*slots: int) -> list[Event]:
    return [RolloutStarted(RUN, 0, slot, 0) for slot in slots]


def training() -> list[Event]:
    return [RunStarted("math/train", 1, steps=3, rollouts=24, done=0)]


def sampled(step: int) -> Event:
    return StepStarted(step, 0, groups=2, rollouts=8, experiences=None)


def scored(step: int) -> list[Event]:
    events = list[Event]()
    for n in range(8):
        slot, attempt = divmod(n, 4)
        done = RolloutFinished("math/train", step, slot, attempt, "ok", float(n % 2))
        events += [RolloutStarted("math/train", step, slot, attempt), done]
    return events


def trained(step: int) -> list[Event]:
    return [sampled(step), *scored(step), WeightsUpdated(step, 0.5, 2, -0.0123, 0.001, 4.2)]


SCENES: dict[str, list[Event]] = {
    "the first seconds": [*begun(), *in_flight(*range(8))],
    "no failure, the teacher at work beside the play": [
        *begun(),
        *played(range(5)),
        *(GroupFinished(0, slot, informative=slot < 4) for slot in range(5)),
        GroupDistilled(0, 0, lessons=2, operations=1),
        *in_flight(5, 6, 7),
        ScoringStarted(Address(BRANCH, 0, 7, 0, "play")),
        asked("summarise", 1),
        asked("summarise", 2),
        asked("compare", 3),
    ],
    "all is played, and the teacher merges": [
        *begun(),
        *played(range(10)),
        asked("merge", -1),
    ],
    "one failure": [*begun(), *played(range(5)), *failed(5, 0), *in_flight(6)],
    "many failures of one kind": [*begun(), *played(range(5)), *failed(5, 0, 0, 0, 0, 0, 0)],
    "many failures of many kinds": [
        *begun(),
        *played(range(5)),
        *failed(5, 0, 0, 0, 1, 1, 2, 3, 4),
    ],
    "the endpoint asks for patience": [
        *begun(),
        *played(range(5)),
        *in_flight(6, 7),
        RetryWaits("127.0.0.1:8000", 429, 25.0, asked=True),
        RetryWaits("127.0.0.1:8001", 503, 7.0, asked=False),
        RetryWaits("127.0.0.1:8001", None, 9.0, asked=False),
    ],
    "all requests wait for a batch": [
        *begun(),
        *played(range(5)),
        *in_flight(6, 7),
        BatchWaits("b1", "a batch of 2 requests (play) at h, sent at 2026-11-27 01:02 UTC"),
        BatchWaits("b0", None),
    ],
    "an evaluation on the way": [
        *begun(),
        *played(range(10)),
        StepFinished(0, 0.5, informative=10, experiences=5),
        RunStarted("math/eval/L3", 2, steps=1, rollouts=20, done=0, simulated=True),
        *played(range(4), run="math/eval/L3", branch=2),
    ],
    "gone on with": [
        *begun(done=6),
        *played(range(3, 5), replayed=True),
        *played(range(5, 7)),
        *in_flight(7),
    ],
    "training, answers are sampled": [*training(), *trained(0), sampled(1)],
    "training, weights change": [*training(), *trained(0), sampled(1), *scored(1)],
}
"""What is seen → the events before it."""
