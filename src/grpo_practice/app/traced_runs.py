"""Traces of stored runs: the part of `Workspace` that sends them."""

from typing import TYPE_CHECKING

from grpo_practice.app.database_file import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.reports.trace_report import TraceReport


class TracedRuns(DatabaseFile):
    """Traces of runs; a base of `Workspace`."""

    def trace(self, run: str, *, content: bool = True, sample: float = 1.0) -> "TraceReport":
        """Send the traces of a stored run to the collector that the environment names.

        Sending twice is harmless: the same run has the same traces.

        Args:
            run: Name of the run.
            content: Whether they show questions, prompts, answers and errors.
            sample: Share of the groups to send, above 0 and up to 1; the same groups each time.

        Raises:
            ConfigError: There is no such run, or no collector is named.
            EndpointError: The collector takes no traces.
        """
        from grpo_practice.app.options import tracing_of
        from grpo_practice.telemetry.stored import send_stored

        with self._store():
            tracing = tracing_of({"trace_content": content, "trace_sample": sample})
            return send_stored(self.path, run, tracing)
