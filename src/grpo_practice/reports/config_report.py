"""Report on a configuration: what it comes to, before anything is paid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from grpo_practice.config import RunConfig
from grpo_practice.config.reading.yaml_reader import parse_yaml
from grpo_practice.config.trust.keys import KeyRoute, sentences
from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class ConfigReport(Report):
    """A configuration as it would be used."""

    schema: ClassVar = "grpo-practice.config/1"
    in_document: ClassVar = ("command", "path", "used", "ignored", "notices", "routes", "settings")

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

    @property
    def settings(self) -> Any:
        """The configuration as data, secrets hidden."""
        return parse_yaml(self.text, "the config").data

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return what would be used, and what has no effect."""
        rows = [*self.used.items(), *(("ignored", text) for text in self.ignored)]
        rows += [("key", text) for text in sentences(self.routes)]
        return [(self.config.exp_id,), *rows, *(("note", text) for text in self.notices)]
