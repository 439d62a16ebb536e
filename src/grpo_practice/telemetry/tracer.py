"""Sends groups while a command plays them: each once it is complete, read from the database.

A thread of its own reads and sends, so that a collector that is slow, dead or hanging costs the
run nothing; what it has not taken by the end is said once.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from grpo_practice.events import (
    Emit,
    Event,
    GroupDistilled,
    GroupFinished,
    Notice,
    RolloutFinished,
    RunStarted,
    StepFinished,
    silent,
)
from grpo_practice.store import branches, steps
from grpo_practice.store.queries import runs
from grpo_practice.store.queries.trace_rows import MERGE, stored_group, written
from grpo_practice.store.reading import open_to_look
from grpo_practice.store.records import Branch
from grpo_practice.telemetry.collector import INSTALL, Refused, Sender, is_installed
from grpo_practice.telemetry.settings import Collector, TraceSettings
from grpo_practice.telemetry.spans import Span, is_sampled, spans_of

_log = logging.getLogger(__name__)

END_S = 1.5
"""Longest wait at the end of a command for what is not sent yet."""
BATCH = 256
"""Spans of one request, about."""
REST_S = 5.0
"""Pause after a request that failed."""
TICK_S = 0.25
"""Time between two looks at what is complete."""

Place = tuple[str, int, int]
"""Run, step and slot of a group."""


@dataclass(slots=True)
class _Seen:
    """State of a command, as its events have told it so far."""

    branch: dict[str, int] = field(default_factory=dict)
    """Run → the branch that is worked on."""
    touched: dict[Place, None] = field(default_factory=dict)
    """Groups that are to be sent once they are complete, in the order in which they ended."""
    distilled: set[tuple[int, int]] = field(default_factory=set)
    """Step and slot of the practice run's groups that the teacher is done with."""
    sent: set[Place] = field(default_factory=set)
    """Groups that were sent; their last events may come after that."""


class Tracer:
    """A sink of events that sends what they are about."""

    def __init__(self, path: Path, collector: Collector, settings: TraceSettings) -> None:
        self._path, self._collector, self._settings = path, collector, settings
        self._sender: Sender | None = None
        self._events = SimpleQueue[Event | None]()
        self._seen = _Seen()
        self._kinds = dict[str, str]()
        self.refused: Refused | None = None
        """Last reason for which spans were not taken."""
        self.unsent = 0
        """Groups that were not taken."""
        # A daemon: one that hangs in a request does not keep the process.
        self._thread = threading.Thread(target=self._work, name="trace", daemon=True)
        self._thread.start()

    def see(self, event: Event) -> None:
        """Note an event; the thread looks at it."""
        self._events.put(event)

    def finish(self, limit_s: float = END_S) -> None:
        """Send what is complete, for so long at most."""
        self._events.put(None)
        if self._sender is not None and self._sender.fails:
            self._sender.close()  # it waits for another try
        self._thread.join(limit_s)
        if self._thread.is_alive():
            self.refused = Refused("no answer in time", lasting=False)
            self.unsent = max(self.unsent, len(self._seen.touched))

    def _work(self) -> None:
        rest_until = 0.0
        try:
            # In this thread: its libraries take half a second to be imported.
            self._sender = sender = Sender(self._collector)
            while True:
                ended = self._take_events()
                given_up = self.refused is not None and self.refused.lasting
                due = ended or time.monotonic() >= rest_until
                if self._seen.touched and due and not (given_up or sender.closed):
                    try:
                        self._send_complete(sender)
                    except Refused as e:
                        if self.refused is None or not sender.closed:  # else that is why
                            self.refused = e
                        rest_until = time.monotonic() + REST_S
                if ended:
                    sender.close()
                    break
        except Exception:  # noqa: BLE001 - a trace that is lost must not cost a run
            _log.warning("tracing failed", exc_info=True)
            self.refused = Refused("it failed (grpo-practice --debug says why)", lasting=True)
        self.unsent = len(self._seen.touched) if self.refused else 0

    def _take_events(self) -> bool:
        """Wait a little for events, and note all that have come; return True at their end."""
        with suppress(Empty):
            event = self._events.get(timeout=TICK_S)
            while event is not None:
                self._note(event)
                event = self._events.get_nowait()
            return True
        return False

    def _note(self, event: Event) -> None:
        seen = self._seen
        match event:
            case RunStarted():
                seen.branch[event.run] = event.branch
            case RolloutFinished(stored=False):
                place = (event.run, event.step, event.slot)
                if place not in seen.sent:
                    seen.touched[place] = None
            case GroupFinished(informative=False) | GroupDistilled():
                seen.distilled.add((event.step, event.slot))
            case StepFinished():
                seen.distilled |= {(s, slot) for _, s, slot in seen.touched if s == event.step}
                seen.distilled.add((event.step, MERGE))
                for run in seen.branch:
                    seen.touched[run, event.step, MERGE] = None
            case _:
                pass

    def _send_complete(self, sender: Sender) -> None:
        """Send the groups that are complete; raise Refused where they are not taken."""
        with closing(open_to_look(self._path)) as db:
            batch, places = list[Span](), list[Place]()
            for place in [*self._seen.touched]:
                spans = self._spans(db, place)
                if spans is None:
                    continue
                batch += spans
                places.append(place)
                if len(batch) >= BATCH:
                    self._send(sender, batch, places)
            self._send(sender, batch, places)

    def _send(self, sender: Sender, batch: list[Span], places: list[Place]) -> None:
        if batch:
            sender.send(batch)
        for place in places:
            del self._seen.touched[place]
            self._seen.sent.add(place)
        batch.clear()
        places.clear()

    def _spans(self, db: sqlite3.Connection, place: Place) -> list[Span] | None:
        """Return the spans of a group, none where it is not sampled; None while it goes on."""
        name, step, slot = place
        practice = self._kind(db, name) == "practice"
        if slot == MERGE and not practice:
            return []  # evaluations have steps, too, and no merge
        if practice and (step, slot) not in self._seen.distilled:
            return None
        branch = branches.load(db, self._seen.branch[name])
        row = steps.one_on_line(db, branch, step)
        # First, since it is asked again and again: are all rows written?
        if row is None or (slot != MERGE and written(db, row, slot) < row.attempts(slot)):
            return None
        return stored_spans(db, branch, (step, slot), self._settings)

    def _kind(self, db: sqlite3.Connection, run: str) -> str:
        if run not in self._kinds:
            self._kinds[run] = runs.get(db, run).kind
        return self._kinds[run]


@contextmanager
def tracing(
    path: Path, collector: Collector, settings: TraceSettings, notice: Emit
) -> Iterator[Emit]:
    """Trace a command that works on a database: its events are to go to what is yielded.

    A collector that is not there, or does not answer, costs one notice and `END_S`.
    """
    if not is_installed():
        notice(Notice(f"{collector.variable}: nothing is traced; {INSTALL}"))
        yield silent
        return
    tracer = Tracer(path, collector, settings)
    what = "" if settings.content else ", without questions and answers"
    notice(Notice(f"traces go to {collector.shown} ({collector.variable}){what}"))
    try:
        yield tracer.see
    finally:
        tracer.finish()
        if tracer.unsent and tracer.refused:
            groups = "1 group was" if tracer.unsent == 1 else f"{tracer.unsent} groups were"
            notice(
                Notice(
                    f"traces: {groups} not sent to {collector.shown}: {tracer.refused};"
                    " grpo-practice runs trace sends them"
                )
            )


def stored_spans(
    db: sqlite3.Connection, branch: Branch, place: tuple[int, int], settings: TraceSettings
) -> list[Span]:
    """Return the spans of a stored group or merge; none where it is not sampled."""
    step, slot = place
    row = steps.one_on_line(db, branch, step)
    if row is None:
        return []
    group = stored_group(db, branch, row, slot, bodies=settings.content)
    if not is_sampled(group, settings.sample):
        return []
    return spans_of(group, content=settings.content)
