"""Report on the exported traces of a stored run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.text import count
from grpo_practice.reports.base import Report


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
        left = [("not whole yet", count(self.open_groups, "group"))] if self.open_groups else []
        return [(title,), *rows, *left]
