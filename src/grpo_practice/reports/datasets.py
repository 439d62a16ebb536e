"""Reports on datasets: lists, contents, statistics and the results of upload, split and sample."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from typing_extensions import override

from grpo_practice.core.types import Sample
from grpo_practice.data.catalog import first_dataset
from grpo_practice.reports.base import Report
from grpo_practice.store.records import DatasetRow


@dataclass(frozen=True, slots=True, repr=False)
class DatasetList(Report):
    """Newest revision of every dataset, sorted by name."""

    schema: ClassVar = "grpo-practice.datasets/1"

    datasets: Sequence[DatasetRow]

    @property
    @override
    def next_command(self) -> str:
        """Command that shows the first dataset, or a command that loads one."""
        if self.datasets:
            return f"grpo-practice data show {shlex.quote(self.datasets[0].name)}"
        return first_dataset()

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return name, size and revision of each dataset."""
        rows = [(d.name, f"{d.n} rows", f"revision {d.revision}") for d in self.datasets]
        return [("datasets",), *rows]


@dataclass(frozen=True, slots=True, repr=False)
class DeletedDataset(Report):
    """A deleted dataset: its name is free to reuse, and runs keep the rows that they used."""

    schema: ClassVar = "grpo-practice.deleted-dataset/1"

    dataset: DatasetRow

    @property
    @override
    def next_command(self) -> str:
        """Command that lists the remaining datasets."""
        return "grpo-practice data list"


@dataclass(frozen=True, slots=True, repr=False)
class ExportedDataset(Report):
    """A dataset that was exported as JSON lines."""

    schema: ClassVar = "grpo-practice.exported-dataset/1"

    dataset: DatasetRow
    path: Path
    answered: bool
    """Whether any row has an answer."""
    changed: int
    """Number of rows, all from Python, that an upload would read back as a different sample."""
    several: bool = False
    """Whether any row names several options, any one of which is right."""

    @property
    @override
    def next_command(self) -> str:
        """Command that uploads the exported file, into this database or another."""
        name, path = shlex.quote(self.dataset.name), shlex.quote(str(self.path))
        # An upload derives the format from the suffix.
        typed = "" if self.path.suffix == ".jsonl" else " --format jsonl"
        judged = "" if self.answered else " --no-answers"
        select = " --select any" if self.several else ""
        return f"grpo-practice data upload {path} --name {name}{typed}{judged}{select}"


@dataclass(frozen=True, slots=True, repr=False)
class DatasetReport(Report):
    """A dataset and its first rows."""

    schema: ClassVar = "grpo-practice.dataset/1"

    dataset: DatasetRow
    rows: Sequence[Sample]
    verify: str
    """Verify function that can use every answer of the dataset."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the first rows: question and answer."""
        title = (f"{self.dataset.name}: {self.dataset.n} rows",)
        return [title, *((s.question, str(s.answer)) for s in self.rows)]


@dataclass(frozen=True, slots=True, repr=False)
class StoredDataset(Report):
    """Rows stored under a name, and the findings about them."""

    schema: ClassVar = "grpo-practice.upload/1"

    dataset: DatasetRow
    new: bool
    """False if the name already held the same rows."""
    origin: str
    """Source of these rows; `dataset.origin` is the earlier source if the rows are not new."""
    notes: Sequence[str]
    skipped: int
    """Number of invalid rows that were skipped."""
    verify: str
    """Verify function used to check the answers."""
    unusable: Mapping[int, str]
    """Row number, from 1, → reason why `verify` cannot use the answer."""
    next_verify: str
    """Verify function that can use every answer."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the number of rows stored under the name, and the findings about them."""
        title = (f"{self.dataset.name} holds {self.dataset.n} rows",)
        unusable = ("unusable", f"{len(self.unusable)} answers, by verify {self.verify}")
        return [title, *(("note", text) for text in self.notes), unusable]


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One part of a dataset that was split."""

    dataset: DatasetRow
    share: float
    """Requested share, between 0 and 1."""
    new: bool
    strata: Mapping[str, int]
    """Source or level → number of rows; empty if the split was made without `by`."""


@dataclass(frozen=True, slots=True, repr=False)
class DatasetSplit(Report):
    """A dataset split into parts that share no question."""

    schema: ClassVar = "grpo-practice.split/1"

    dataset: DatasetRow
    seed: int
    by: Literal["source", "level"] | None
    parts: Sequence[SplitPart]
    verify: str
    """Verify function that can use every answer of the last part."""


@dataclass(frozen=True, slots=True, repr=False)
class DatasetSample(Report):
    """A random sample of a dataset's rows, stored as a separate dataset."""

    schema: ClassVar = "grpo-practice.sample/1"

    dataset: DatasetRow
    source: DatasetRow
    seed: int
    new: bool
    verify: str
    """Verify function that can use every answer of the sample."""
