"""Report on the effective configuration, before the run spends anything."""

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
    """A configuration with the settings that take effect."""

    schema: ClassVar = "grpo-practice.config/1"
    in_document: ClassVar = ("command", "path", "used", "ignored", "notices", "routes", "settings")

    config: RunConfig
    path: Path | None
    """File that the configuration was read from; None if it was passed as a value or comes from
    the latest run.
    """
    used: Mapping[str, str]
    """Purpose → setting that a run would use."""
    ignored: Sequence[str]
    """Messages about keys that have no effect, one per key."""
    notices: Sequence[str]
    """Notices for the user."""
    text: str
    """The configuration as YAML that can be loaded again, with secrets hidden."""
    routes: Sequence[KeyRoute] = ()
    """Routes of secrets from the environment: the destination host of each, and the file that sets
    it.
    """

    @property
    def command(self) -> str:
        """Name of the command that the configuration is for."""
        trains = self.config.kind == "practice" and self.config.only_trains
        return "train" if trains else self.config.kind

    @property
    def settings(self) -> Any:
        """The configuration as plain data, with secrets hidden."""
        # Use the text, which hides the secrets that `config` contains.
        return parse_yaml(self.text, "the config").data

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the settings in use, and the keys without effect."""
        rows = [*self.used.items(), *(("ignored", text) for text in self.ignored)]
        rows += [("key", text) for text in sentences(self.routes)]
        return [(self.config.exp_id,), *rows, *(("note", text) for text in self.notices)]
