"""Report on an exported agent: its text, its origin, and its scores."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.reports.agent_formats import FORMATS, Files, format_by_name, one_text
from grpo_practice.reports.base import Report
from grpo_practice.reports.before_after import BeforeAfter, When
from grpo_practice.reports.exported_agent import ExportedAgent, Measured


@dataclass(frozen=True, slots=True, repr=False)
class Exported(Report):
    """An agent with its experiences, rendered in one of the formats."""

    schema: ClassVar = "grpo-practice.export/1"
    in_document: ClassVar = (
        *("agent.provenance.run", "agent.provenance.branch", "agent.provenance.step"),
        *("agent.library", "agent.library.experiences", "agent.provenance.simulated", "before"),
        *("after", "agent.provenance.left_out", "format", "path", "files", "call", "measure"),
    )

    agent: ExportedAgent
    files: Files
    format: str
    path: Path | None
    """File or folder that was written; None if only the text was made."""
    call: str | None = None
    """Python call that evaluates the agent, if only the program that started the run can."""
    scores: BeforeAfter | None = None
    """Scores of the agent before and after practice, and the commands for missing scores."""
    ref: str = ""
    """Options of `export-agent` that select this library."""

    @property
    def text(self) -> str:
        """Text of a single-file format; see `one_text`."""
        return one_text(self.files, self.format)

    @property
    def before(self) -> Measured | None:
        """Score of the agent without its library, if it was evaluated."""
        return self.agent.provenance.before

    @property
    def after(self) -> Measured | None:
        """Score of the agent with its library, if it was evaluated."""
        return self.agent.provenance.after

    @property
    @override
    def next_command(self) -> str | None:
        """Command that evaluates the agent; None if it is measured or no command can load it."""
        if self.path is None or self.call or not FORMATS[self.format].loadable:
            return None
        if self.scores is None:
            return f"grpo-practice eval --agent {shlex.quote(str(self.path))}"
        return self.scores.measure(self._arm)

    @property
    def _arm(self) -> str | None:
        """File to name as an arm; None for the last library of a run, which is the arm `full`."""
        last = self.ref == f" --run {shlex.quote(self.agent.provenance.run)}"
        return None if last else str(self.path)

    @property
    def measure(self) -> dict[When, str]:
        """Missing scores, each with the command that measures it."""
        if self.scores is None or self.call:
            return {}
        readable = self.path is not None and FORMATS[self.format].loadable
        return self.scores.missing(self._arm if readable else None)

    @property
    def renew_command(self) -> str | None:
        """Command that writes the file again with newer scores; None without a file."""
        if self.path is None:
            return None
        form = "" if self.format == format_by_name(str(self.path)) else f" --format {self.format}"
        file = shlex.quote(str(self.path))
        return f"grpo-practice export-agent{self.ref}{form} -o {file} --force"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return sentences about origin and scores."""
        written = f" in {self.path}" if self.path else ""
        return [(f"{self.agent.name}{written}",), *((fact,) for fact in self.agent.facts)]
