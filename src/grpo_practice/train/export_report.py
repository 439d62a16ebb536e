"""Report on exported weights."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class TrainedExport(Report):
    """Trained weights exported as a folder, with a file that describes the agent."""

    schema: ClassVar = "grpo-practice.trained-export/1"

    run: str
    step: int
    sha256: str
    """Hash of the checkpoint's weights, in hex."""
    path: Path
    """Folder that was written."""
    agent: Path
    """Agent file, for `eval --agent`."""
    weights: Path
    """Folder of the adapter, or of the whole model."""
    bytes: int
    """Size of the weights' folder."""
    model: str
    """Model name that the agent requests from the endpoint."""
    serve: str
    """Command that serves the weights."""
    library: str | None = None
    """Practice run of the same experiment; its library may be added to the prompt."""

    @property
    @override
    def next_command(self) -> str:
        """Command that evaluates the agent once an endpoint serves the weights."""
        return f"grpo-practice eval --agent {shlex.quote(str(self.agent))}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the origin, path and size of the weights, and the command that serves them."""
        return [
            (f"{self.run} after step {self.step}",),
            ("weights", f"{self.weights} ({self.bytes:,} bytes)"),
            ("agent", str(self.agent)),
            ("serve", self.serve),
        ]
