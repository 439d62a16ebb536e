"""Report on a configuration: what it comes to, before anything is paid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from grpo_practice.config import RunConfig
from grpo_practice.config.reading.yaml_reader import parse_yaml
from grpo_practice.config.trust.keys import KeyRoute, sentences
from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class ConfigReport(Report):
    """A configuration as it would be used."""

    config: RunConfig
    path: Path | None
    """File it was read from; None for one that was given as a value, or the latest run's."""
    used: Mapping[str, str]
    """Settings that a run would use, by what they are for."""
    ignored: Sequence[str]
    """A sentence for each key that has no effect."""
    notices: Sequence[str]
    """Notices for a person."""
    text: str
    """The configuration as YAML that reads back, secrets hidden."""
    routes: Sequence[KeyRoute] = ()
    """Ways of the environment's secrets: which goes where, and who says so."""

    @property
    def command(self) -> str:
        """Name of the command that it is for."""
        trains = self.config.kind == "practice" and self.config.only_trains
        return "train" if trains else self.config.kind

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.config/1`."""
        return {
            "schema": "grpo-practice.config/1",
            "command": self.command,
            "path": str(self.path) if self.path else None,
            "used": dict(self.used),
            "ignored": list(self.ignored),
            "notices": list(self.notices),
            "keys": [route.document() for route in self.routes],
            "config": parse_yaml(self.text, "the config").data,
            "exit": 0,
        }

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return what would be used, and what has no effect."""
        rows = [*self.used.items(), *(("ignored", text) for text in self.ignored)]
        rows += [("key", text) for text in sentences(self.routes)]
        return [(self.config.exp_id,), *rows, *(("note", text) for text in self.notices)]
