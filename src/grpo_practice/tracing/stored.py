"""Sending of traces of stored runs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from time import sleep
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from grpo_practice.core.errors import ConfigError, EndpointError
from grpo_practice.core.text import count
from grpo_practice.reports.base import Report
from grpo_practice.store import Store
from grpo_practice.store.queries import runs
from grpo_practice.store.queries.traced import (
    MERGE,
    TracedStep,
    played_slots,
    traced_groups,
    traced_steps,
)
from grpo_practice.tracing.collector import VARIABLES, collector_of, variables_of
from grpo_practice.tracing.spans import Span, sampled, spans_of
from grpo_practice.tracing.tracer import GROUPS_PER_READ, NOT_INSTALLED, Tracing

if TYPE_CHECKING:
    from grpo_practice.tracing.sender import Sender


@dataclass(frozen=True, slots=True, repr=False)
class TraceReport(Report):
    """Traces of a run that a collector accepted."""

    schema: ClassVar = "grpo-practice.trace/1"

    run: str
    to: str
    """Address of the collector, without credentials."""
    traces: int
    """Number of groups and merges."""
    spans: Mapping[str, int]
    """Kind → number of spans."""
    open_groups: int
    """Number of groups left out because they are not fully played."""

    @property
    @override
    def next_command(self) -> str:
        """Command that shows the run."""
        return f"grpo-practice runs show {quote(self.run)}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each kind of span."""
        title = f"{self.run}: {count(self.traces, 'trace')} to {self.to}"
        rows = [(kind, str(n)) for kind, n in sorted(self.spans.items())]
        left = [("not complete yet", count(self.open_groups, "group"))] if self.open_groups else []
        return [(title,), *rows, *left]


TRIES, FIRST_PAUSE_S = 5, 1.0
"""Maximum number of attempts to send spans to a busy collector, and the first pause in seconds."""


def send_stored(path: Path, run: str, tracing: Tracing) -> TraceReport:
    """Send the traces of a run's completely stored groups, and of its merges.

    Raises:
        ConfigError: The run does not exist, or no collector is configured.
        EndpointError: The collector refuses the traces.
    """
    collector = collector_of(variables_of(None))
    try:
        from grpo_practice.tracing.sender import Sender
    except ImportError as e:
        raise ConfigError(
            "traces need OpenTelemetry, which is not installed", hint=NOT_INSTALLED
        ) from e
    with Store(path, "look") as store:
        name = store.read(runs.named, run).name
        steps = store.read(traced_steps, name)
        slots = [(step, [*store.read(played_slots, step), MERGE]) for step in steps]
    if collector is None:
        raise ConfigError(
            "no trace collector is set",
            hint=f"set one of {', '.join(VARIABLES)}, for example to http://127.0.0.1:6006",
        )
    traces, kinds = 0, Counter[str]()
    with Sender(collector) as sender:
        for roots in _batches(path, slots, tracing):
            spans = [span for root in roots for span in root.each()]
            _insist(sender, spans)
            traces += len(roots)
            kinds.update(span.kind for span in spans)
    # A slot without attempts was skipped by the group policy and is not waited for.
    open_groups = sum(
        attempts > 0 and slot not in there
        for step, there in slots
        for slot, (_, attempts) in enumerate(step.slots)
    )
    return TraceReport(name, collector.shown, traces, dict(kinds), open_groups)


def _batches(
    path: Path, slots: list[tuple[TracedStep, list[int]]], tracing: Tracing
) -> Iterator[list[Span]]:
    """Yield the root spans of each step in batches."""
    for step, there in slots:
        chosen = [slot for slot in there if sampled(step, slot, tracing.share)]
        for start in range(0, len(chosen), GROUPS_PER_READ):
            # Close soon: an open reader keeps the WAL of a running practice from shrinking.
            with Store(path, "look") as store:
                batch = chosen[start : start + GROUPS_PER_READ]
                groups = store.read(traced_groups, step, batch, content=tracing.content)
            roots = [spans_of(group, content=tracing.content) for group in groups]
            yield [root for root in roots if root is not None]


def _insist(sender: "Sender", spans: list[Span]) -> None:
    """Send the spans, with retries if the collector is busy.

    Raises:
        EndpointError: The collector refuses them.
    """
    tries = 0
    while (refusal := sender.send(spans)) is not None:
        tries += 1
        if refusal.lasts or tries == TRIES:
            raise EndpointError(f"no traces: {refusal.why}")
        sleep(FIRST_PAUSE_S * 2 ** (tries - 1))
