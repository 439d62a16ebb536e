"""Report on a configuration: what it comes to, before anything is paid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.config import RunConfig


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """A configuration as it would be used."""

    config: RunConfig
    path: Path | None
    """File it was read from; None: stored with the latest run."""
    used: Mapping[str, str]
    """Settings that a run would use, by what they are for."""
    ignored: Sequence[str]
    """A sentence for each key that has no effect."""
    notices: Sequence[str]
    """Notices for a person."""

    @property
    def command(self) -> str:
        """Name of the command that it is for."""
        return self.config.kind
