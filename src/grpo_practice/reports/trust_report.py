"""Report on whom the user trusts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.config.trust.word import OWN
from grpo_practice.reports.base import Report
from grpo_practice.text import count


@dataclass(frozen=True, slots=True, repr=False)
class TrustReport(Report):
    """All that is remembered of the user's word on what others made."""

    schema: ClassVar = "grpo-practice.trust/1"

    file: Path | None
    """File that remembers it; None where there is no home to keep one."""
    trusted: Sequence[Mapping[str, str]]
    """Things that are trusted, the oldest first: a folder, a config, or a host for a key."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each thing that is trusted."""
        kinds = ("folder", "of", "host")
        folders, files, hosts = ([r for r in self.trusted if kind in r] for kind in kinds)
        # A file has a record for each of its texts, and for each folder that it is used in.
        texts = Counter(record["of"] for record in files)
        own = texts.pop(OWN, 0)
        rows = [("folder", record["folder"]) for record in folders]
        rows += [("file", file) for file in texts]
        rows += [("host", f"{record['host']} for {record['variable']}") for record in hosts]
        rows += [("own", f"{count(own, 'config')} of runs and exports of yours")] if own else []
        return [(str(self.file or "nothing is remembered"),), *rows]
