"""Traces of a stored run that were sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from typing_extensions import override

from grpo_practice.reports.base import Report
from grpo_practice.text import count


@dataclass(frozen=True, slots=True, repr=False)
class SentTraces(Report):
    """A run that was sent to a collector."""

    run: str
    collector: str
    """Address that it was sent to."""
    project: str
    traces: int
    """Groups and merges: a trace each."""
    spans: Mapping[str, int]
    """Kind of span → how many."""

    @property
    def sentence(self) -> str:
        """Result in one sentence."""
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(self.spans.items()))
        n = sum(self.spans.values())
        return (
            f"{count(self.traces, 'trace')} of {self.run} sent to {self.collector}: {n:,} spans"
            f" ({kinds or 'none'}); a call began when it was stored, less the seconds it took"
        )

    @property
    def next_command(self) -> str:
        """Command to type now."""
        return f"grpo-practice runs show {quote(self.run)}"

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.traces/1`."""
        return {
            "schema": "grpo-practice.traces/1",
            "run": self.run,
            "collector": self.collector,
            "project": self.project,
            "traces": self.traces,
            "spans": dict(self.spans),
            "next": self.next_command,
            "exit": 0,
        }

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the number of spans of each kind."""
        return [(self.run,), *((kind, str(n)) for kind, n in sorted(self.spans.items()))]
