"""A dataset as JSON lines that `data upload` reads back as the same samples."""

import json
from collections.abc import Iterator

from grpo_practice.core.errors import DataError
from grpo_practice.core.foreign_text import respell
from grpo_practice.core.types import Sample
from grpo_practice.data.answers import PLAIN
from grpo_practice.data.golds import GoldMapping, SeveralRightError
from grpo_practice.data.row_layout import find_layout, to_sample
from grpo_practice.store import Store, datasets
from grpo_practice.store.records import DatasetRow


class DatasetLines:
    """The lines of a dataset, read one by one, with observations about the rows so far.

    Attributes:
        changed: Number of rows that an upload would read as a different sample.
        answered: Whether any row has an answer.
        several: Whether any row names several options, any one of which is right.
    """

    def __init__(self, store: Store, dataset: DatasetRow) -> None:
        self._store, self._dataset = store, dataset
        self.changed = 0
        self.answered = self.several = False

    def __iter__(self) -> Iterator[str]:
        for sample in self._store.each(datasets.each, self._dataset.id):
            self.answered = self.answered or sample.answer is not None
            self.several = self.several or _names_several(sample)
            row = _row(sample)
            self.changed += not _is_read_back(row, sample)
            # Escape C1 controls and bidi marks, which JSON allows: the reader may be a terminal.
            text = json.dumps(row, ensure_ascii=False)
            yield respell(text, lambda char: json.dumps(char)[1:-1]) + "\n"


def _row(sample: Sample) -> dict[str, object]:
    """Return the row with the column names that an upload expects."""
    more = {
        "source": sample.source,
        "level": sample.level,
        "cluster": sample.cluster,
        "meta": dict(sample.meta),
    }
    given = {name: value for name, value in more.items() if value}
    return {"question": sample.question, "answer": sample.answer, **given}


def _names_several(sample: Sample) -> bool:
    """Return whether an upload would ask the user how to interpret several right options."""
    try:
        GoldMapping().read(sample.answer, None)
    except SeveralRightError:
        return True
    return False


def _is_read_back(row: dict[str, object], sample: Sample) -> bool:
    """Return whether an upload reads the row as the same sample; samples from Python may differ."""
    try:
        layout = find_layout(row, {})
        return to_sample(row, layout, layout.parts(row), PLAIN).sha == sample.sha
    except DataError:
        return False
