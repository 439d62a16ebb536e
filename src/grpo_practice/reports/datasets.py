"""Reports on datasets: lists, contents, statistics, and what an upload, split or sample stored."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from typing_extensions import override

from grpo_practice.data.catalog import first_dataset
from grpo_practice.reports.base import Report
from grpo_practice.store.records import DatasetRow
from grpo_practice.types import Sample


@dataclass(frozen=True, slots=True, repr=False)
class DatasetList(Report):
    """Newest revision of every dataset, by name."""

    schema: ClassVar = "grpo-practice.datasets/1"

    datasets: Sequence[DatasetRow]

    @property
    @override
    def next_command(self) -> str:
        """Command to type now."""
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
    """A dataset whose name was given back; runs keep the rows that they used."""

    schema: ClassVar = "grpo-practice.deleted-dataset/1"

    dataset: DatasetRow

    @property
    @override
    def next_command(self) -> str:
        """Command to type now."""
        return "grpo-practice data list"


@dataclass(frozen=True, slots=True, repr=False)
class ExportedDataset(Report):
    """A dataset that was written to a file of JSON lines."""

    schema: ClassVar = "grpo-practice.exported-dataset/1"

    dataset: DatasetRow
    path: Path
    answered: bool
    """Whether any row has an answer."""
    changed: int
    """Rows that an upload would read as another sample; only samples from Python can be such."""
    several: bool = False
    """Whether any row names several options, of which one is enough."""

    @property
    @override
    def next_command(self) -> str:
        """Command that stores the same dataset again, in this database or another."""
        name, path = shlex.quote(self.dataset.name), shlex.quote(str(self.path))
        typed = "" if self.path.suffix == ".jsonl" else " --format jsonl"
        judged = "" if self.answered else " --no-answers"
        select = " --select any" if self.several else ""
        return f"grpo-practice data upload {path} --name {name}{typed}{judged}{select}"


@dataclass(frozen=True, slots=True, repr=False)
class DatasetReport(Report):
    """One dataset and its first rows."""

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
    """Rows now stored under a name, and what was found in them."""

    schema: ClassVar = "grpo-practice.upload/1"

    dataset: DatasetRow
    new: bool
    """False where the name held the same rows before."""
    origin: str
    """Source of these rows; `dataset.origin` is an earlier one where they are not new."""
    notes: Sequence[str]
    skipped: int
    """Bad rows left out."""
    verify: str
    """Verify function that the answers were checked with."""
    unusable: Mapping[int, str]
    """Row number, from 1, → why `verify` cannot use its answer."""
    next_verify: str
    """Verify function that can use every answer."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return how many rows the name holds, and what was found in them."""
        title = (f"{self.dataset.name} holds {self.dataset.n} rows",)
        unusable = ("unusable", f"{len(self.unusable)} answers, by verify {self.verify}")
        return [title, *(("note", text) for text in self.notes), unusable]


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One part of a divided dataset."""

    dataset: DatasetRow
    share: float
    """Share asked for, between 0 and 1."""
    new: bool
    strata: Mapping[str, int]
    """Source or level → rows; empty where the split goes by neither."""


@dataclass(frozen=True, slots=True, repr=False)
class DatasetSplit(Report):
    """Datasets without a question in common that a dataset was divided into."""

    schema: ClassVar = "grpo-practice.split/1"

    dataset: DatasetRow
    seed: int
    by: Literal["source", "level"] | None
    parts: Sequence[SplitPart]
    verify: str
    """Verify function that can use every answer of the last part."""


@dataclass(frozen=True, slots=True, repr=False)
class DatasetSample(Report):
    """Some rows of a dataset, stored as a dataset."""

    schema: ClassVar = "grpo-practice.sample/1"

    dataset: DatasetRow
    source: DatasetRow
    seed: int
    new: bool
    verify: str
    """Verify function that can use every answer of the sample."""
