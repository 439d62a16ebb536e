"""Live traces of a run: a thread reads stored groups and sends them."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from shlex import quote
from time import monotonic

from grpo_practice.core.errors import ConfigError, StoreError
from grpo_practice.core.events import Emit, Event, GroupStored, Notice, RunStarted, reason, tee
from grpo_practice.core.text import count
from grpo_practice.store import Store
from grpo_practice.store.queries.traced import traced_groups, traced_step
from grpo_practice.tracing.collector import Collector, collector_of, variables_of
from grpo_practice.tracing.spans import Span, sampled, spans_of

NOT_INSTALLED = "pip install 'grpo-practice[trace]'"
END_S = 1.5
"""Maximum number of seconds that the end of a command waits for traces; the whole exit must take
less than 2."""
GATHER_S = 0.5
"""Seconds during which groups are collected before they are sent."""
GROUPS_PER_READ = 32
"""Maximum number of groups that are read together."""
QUEUED = 20_000
"""Maximum number of waiting groups; further groups are dropped."""
PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
"""First and maximum pause in seconds before retrying a collector that refused spans."""


@dataclass(frozen=True, slots=True)
class Tracing:
    """Trace options of a command."""

    content: bool = True
    """Whether questions, prompts, answers and errors are sent."""
    share: float = 1.0
    """Share of the groups to send."""


@contextmanager
def traced(
    store: Store, tracing: Tracing, emit: Emit, env: Mapping[str, str] | None = None
) -> Iterator[Emit]:
    """Yield an `emit` that also traces if a collector is configured.

    `emit` must not raise, as one made by `tee` does not. For `env`, see `variables_of`.
    """
    try:
        collector = collector_of(variables_of(env))
        if collector is not None:
            import_module("grpo_practice.tracing.otlp")
    except (ConfigError, ImportError) as e:
        # A run matters more than its traces, so it continues without them.
        hint = e.hint if isinstance(e, ConfigError) else NOT_INSTALLED
        what = (
            str(e)
            if isinstance(e, ConfigError)
            else "no traces are sent: OpenTelemetry is not installed"
        )
        emit(Notice(f"{what}; {hint}" if hint else what))
        collector = None
    if collector is None:
        yield emit
        return
    tracer = Tracer(store, collector, tracing, emit)
    try:
        yield tee(emit, tracer.record)
    finally:
        tracer.close()


class Tracer:
    """Event sink that sends each group of a command's runs once it is stored.

    A collector can neither fail nor delay a run: groups that it does not accept in time are
    dropped, and the loss is reported once.
    """

    def __init__(self, store: Store, collector: Collector, tracing: Tracing, emit: Emit) -> None:
        self._store, self._collector, self._tracing, self._emit = store, collector, tracing, emit
        self._queue = list[GroupStored]()
        """Groups that have not been sent, including those being sent."""
        # Guards the queue, which the event loop fills and the thread empties.
        self._changed = threading.Condition()
        self._ends_at: float | None = None
        """Deadline for sending everything; None until the command ends."""
        self._trouble: str | None = None
        """Message that has not been emitted yet."""
        self._troubled = self._announced = False
        self._dropped = list[GroupStored]()
        # A daemon, so that a collector that hangs cannot block the exit of the process.
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
        self._thread.start()

    def record(self, event: Event) -> None:
        """Process an event, and emit a pending message."""
        match event:
            case GroupStored():
                with self._changed:
                    full = len(self._queue) >= QUEUED or not self._thread.is_alive()
                    (self._dropped if full else self._queue).append(event)
                    self._changed.notify()
            case RunStarted() if not self._announced:
                self._announced = True
                texts = "" if self._tracing.content else ", without texts"
                where = f"{self._collector.shown} ({self._collector.variable})"
                self._emit(Notice(f"traces go to {where}{texts}"))
            case _:
                pass
        self._say()

    def close(self) -> None:
        """Send the remaining groups for at most `END_S`, and report dropped groups."""
        with self._changed:
            self._ends_at = monotonic() + END_S
            self._changed.notify()
        self._thread.join(END_S)
        with self._changed:
            dropped = self._dropped + self._queue
        self._say()
        if dropped:
            # Quote the names, which may contain any character.
            runs = dict.fromkeys(group.run for group in dropped)
            again = ", ".join(f"grpo-practice runs trace {quote(run)}" for run in runs)
            sent = f"the traces of {count(len(dropped), 'group')} could not be sent in time"
            self._emit(Notice(f"{sent}; to send them: {again}"))

    def _say(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            self._emit(Notice(trouble))

    def _work(self) -> None:
        try:
            self._send_all()
        except Exception as e:  # noqa: BLE001 - tracing must not stop the run
            self._complain(f"no more traces are sent: {reason(e)}")

    def _send_all(self) -> None:
        from grpo_practice.tracing.sender import WAIT_S, Sender

        pause = 0.0
        with Sender(self._collector) as sender:
            while groups := self._next(pause):
                spans = self._spans(groups)
                left = WAIT_S if self._ends_at is None else self._ends_at - monotonic()
                refusal = sender.send(spans, min(left, WAIT_S))
                if refusal is not None:
                    self._complain(f"no traces: {refusal.why}")
                    pause = min(2 * pause or PAUSE_S, LONGEST_PAUSE_S)
                    if refusal.lasts or self._ends_at is not None:
                        return
                    continue
                pause = 0.0
                with self._changed:
                    del self._queue[: len(groups)]

    def _next(self, pause: float) -> Sequence[GroupStored]:
        """Return the groups to send next; empty once the command has ended and all are sent."""

        def ends() -> bool:
            return self._ends_at is not None

        with self._changed:
            self._changed.wait_for(lambda: self._queue or ends())
            if pause:  # a collector in trouble gets a pause
                self._changed.wait_for(ends, pause)
            else:
                self._changed.wait_for(
                    lambda: len(self._queue) >= GROUPS_PER_READ or ends(), GATHER_S
                )
            late = self._ends_at is not None and monotonic() >= self._ends_at
            return [] if late else self._queue[:GROUPS_PER_READ]

    def _spans(self, groups: Sequence[GroupStored]) -> list[Span]:
        """Return the spans of the groups; a run deleted in the meantime has no spans."""
        places = dict[tuple[str, int], list[int]]()
        for group in groups:
            places.setdefault((group.run, group.step), []).append(group.slot)
        self._store.flush()  # rows may still be queued for writing
        # Close soon: an open reader keeps the WAL of a running practice from shrinking.
        with Store(self._store.path, "look") as store:
            spans, content = list[Span](), self._tracing.content
            for (run, number), slots in places.items():
                try:
                    step = store.read(traced_step, run, number)
                except StoreError:
                    continue
                chosen = [slot for slot in slots if sampled(step, slot, self._tracing.share)]
                for read in store.read(traced_groups, step, chosen, content=content):
                    root = spans_of(read, content=content)
                    spans += root.each() if root is not None else ()
        return spans

    def _complain(self, text: str) -> None:
        """Store a message to be emitted, if it is the first one."""
        if not self._troubled:
            self._troubled, self._trouble = True, text
