"""Report on trained weights that were exported."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class TrainedExport(Report):
    """Trained weights as a folder, with the agent that they are."""

    schema: ClassVar = "grpo-practice.trained-export/1"

    run: str
    step: int
    sha256: str
    """Hash of the checkpoint's weights, in hex."""
    path: Path
    """Folder that was written."""
    agent: Path
    """File of the agent, which `eval --agent` reads."""
    weights: Path
    """Folder of the adapter, or of the whole model."""
    bytes: int
    """Size of the weights' folder."""
    model: str
    """Name that the agent's file asks the endpoint for."""
    serve: str
    """Command that serves the weights."""
    library: str | None = None
    """Practice run of the same experiment, whose library may be put on top."""

    @property
    @override
    def next_command(self) -> str:
        """Command that evaluates it, once an endpoint serves it."""
        return f"grpo-practice eval --agent {shlex.quote(str(self.agent))}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return origin, place and size, and how it is served."""
        return [
            (f"{self.run} after step {self.step}",),
            ("weights", f"{self.weights} ({self.bytes:,} bytes)"),
            ("agent", str(self.agent)),
            ("serve", self.serve),
        ]
