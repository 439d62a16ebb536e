"""Hashes of texts, where the texts themselves may be more than the memory holds.

Hashes of 64 bits: two of a million texts have the same one in 1 of 37 million datasets.
"""

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

from grpo_practice.types import Samples

if TYPE_CHECKING:  # slow to import
    import numpy as np
    from numpy.typing import NDArray


def folded(question: str) -> str:
    """Fold case and spaces of a question."""
    return " ".join(question.casefold().split())


def question_hashes(samples: Samples) -> "NDArray[np.int64]":
    """Hash each question, case and spaces folded. Index = position."""
    return hashes(folded(sample.question) for sample in samples)


def hashes(values: Iterable[str | bytes]) -> "NDArray[np.int64]":
    """Hash each value, for comparisons in this process alone."""
    import numpy as np

    return np.array(array("q", map(hash, values)))
