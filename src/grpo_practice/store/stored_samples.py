"""The samples of a stored dataset, which may not fit into memory."""

from collections.abc import Iterator
from dataclasses import dataclass

from grpo_practice.core.types import Sample
from grpo_practice.store import datasets
from grpo_practice.store.records import DatasetRow
from grpo_practice.store.store import Store


@dataclass(frozen=True, slots=True)
class StoredSamples:
    """The samples of a dataset, read one by one while the store is open."""

    store: Store
    row: DatasetRow

    def __len__(self) -> int:
        return self.row.n

    def __iter__(self) -> Iterator[Sample]:
        return self.store.each(datasets.each, self.row.id)
