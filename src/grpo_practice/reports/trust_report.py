"""Report on the files, folders and hosts that the user trusts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.config.trust.word import OWN
from grpo_practice.core.text import count
from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class TrustReport(Report):
    """All stored decisions by the user to trust other people's files and hosts."""

    schema: ClassVar = "grpo-practice.trust/1"

    file: Path | None
    """File that stores the decisions; None if the user has no home directory."""
    trusted: Sequence[Mapping[str, str]]
    """Trusted folders, configs, and hosts that may receive a key; oldest first."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each trusted folder, file and host."""
        kinds = ("folder", "of", "host")
        folders, files, hosts = ([r for r in self.trusted if kind in r] for kind in kinds)
        # A file has one record per version of its text and per folder that uses it.
        texts = Counter(record["of"] for record in files)
        own = texts.pop(OWN, 0)
        rows = [("folder", record["folder"]) for record in folders]
        rows += [("file", file) for file in texts]
        rows += [("host", f"{record['host']} for {record['variable']}") for record in hosts]
        rows += [("own", f"{count(own, 'config')} of runs and exports of yours")] if own else []
        return [(str(self.file or "nothing is remembered"),), *rows]
