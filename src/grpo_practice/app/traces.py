"""Traces of runs: while a command plays them, or of what is stored."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from shlex import quote
from typing import TYPE_CHECKING, Any

from grpo_practice.errors import ConfigError, EndpointError, StoreError
from grpo_practice.events import Emit, silent

if TYPE_CHECKING:
    from grpo_practice.reports.sent_traces import SentTraces
    from grpo_practice.store import Store
    from grpo_practice.telemetry.settings import TraceSettings

BATCH = 256
"""Spans of one request, about."""


def trace_settings(options: Mapping[str, Any]) -> "TraceSettings":
    """Return what of a run is to be sent; raise ConfigError for a share that is none."""
    from grpo_practice.telemetry.settings import TraceSettings

    share = options.get("trace_sample", 1.0)
    if not 0 <= share <= 1:
        raise ConfigError(f"--trace-sample {share:g}: should be from 0 to 1, for instance 0.1")
    return TraceSettings(options.get("trace_content", True), share)


@contextmanager
def traced(
    store: "Store", settings: "TraceSettings", notice: Emit, *, scratch: bool
) -> Iterator[Emit]:
    """Trace a command where the process's environment names a collector; yield its sink."""
    from grpo_practice.telemetry.settings import collector_of

    collector = None if scratch else collector_of(os.environ)
    if collector is None:
        yield silent
        return
    from grpo_practice.telemetry.tracer import tracing

    with tracing(store.path, collector, settings, notice) as sink:
        try:
            yield sink
        finally:
            with suppress(StoreError):  # said by whoever waits for the run
                store.flush()  # the tracer reads what is on disk


def send_run(store: "Store", name: str, settings: "TraceSettings") -> "SentTraces":
    """Send what is stored of a run to the collector that the environment names.

    Raises:
        ConfigError: There is no such run, or no collector.
        EndpointError: The collector did not take all of it.
    """
    from grpo_practice.reports.sent_traces import SentTraces
    from grpo_practice.store import branches
    from grpo_practice.store.queries import runs
    from grpo_practice.store.queries.trace_rows import group_places
    from grpo_practice.telemetry.collector import Refused, Sender
    from grpo_practice.telemetry.settings import VARIABLES, collector_of
    from grpo_practice.telemetry.spans import Span
    from grpo_practice.telemetry.tracer import stored_spans

    run = store.read(runs.get, name)
    if run.head_branch is None or run.kind == "recorded":
        what = "was never begun" if run.head_branch is None else "is recorded: it has no rollouts"
        raise ConfigError(f"{name} {what}", hint=f"grpo-practice runs show {quote(name)}")
    collector = collector_of(os.environ)
    if collector is None:
        raise ConfigError(
            "no collector is named",
            hint=f"set {VARIABLES[0]} in the environment, for instance to http://127.0.0.1:6006",
        )
    branch, sender = store.read(branches.load, run.head_branch), Sender(collector)
    batch, kinds, traces = list[Span](), dict[str, int](), 0

    def send() -> None:
        sender.send(batch)
        for span in batch:
            kinds[span.kind] = kinds.get(span.kind, 0) + 1
        batch.clear()

    try:
        for place in store.each(group_places, branch):
            spans = store.read(stored_spans, branch, place, settings)
            batch += spans
            traces += bool(spans)
            if len(batch) >= BATCH:
                send()
        if batch:
            send()
    except Refused as e:
        sent = sum(kinds.values())
        raise EndpointError(
            f"traces: {collector.shown} took {sent:,} spans and no more: {e}"
        ) from None
    finally:
        sender.close()
    return SentTraces(name, collector.shown, collector.project, traces, kinds)
