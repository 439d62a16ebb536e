"""The methods of `Workspace` that send traces."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from typing_extensions import override

from grpo_practice.api.workspace import Workspace as Core
from grpo_practice.run.requests.base import RunRequest, TracedRequest

if TYPE_CHECKING:
    from grpo_practice.core.events import Emit
    from grpo_practice.store import Store
    from grpo_practice.tracing.stored import TraceReport


class Traces(Core):
    """Runs as OpenTelemetry spans."""

    def trace(self, run: str, *, content: bool = True, sample: float = 1.0) -> "TraceReport":
        """Send the traces of a stored run to the collector named by the environment.

        Sending a run twice is harmless, because its traces are the same each time.

        Args:
            run: Name of the run.
            content: Whether traces include questions, prompts, answers and errors.
            sample: Share of the groups to send, above 0 and up to 1; the same groups each time.

        Raises:
            ConfigError: The run does not exist, or the environment names no collector.
            EndpointError: The collector does not accept the traces.
        """
        from grpo_practice.run.requests.base import check_share
        from grpo_practice.tracing.stored import send_stored
        from grpo_practice.tracing.tracer import Tracing

        with self._store():
            check_share(sample)
            return send_stored(self.path, run, Tracing(content, sample))

    @override
    @contextmanager
    def _emitting(self, store: "Store", request: RunRequest) -> "Iterator[Emit]":
        from grpo_practice.tracing.tracer import Tracing, traced

        with super()._emitting(store, request) as emit:
            if not isinstance(request, TracedRequest):
                yield emit
                return
            tracing = Tracing(request.trace_content, request.trace_sample)
            with traced(store, tracing, emit, request.env) as traced_too:
                yield traced_too
