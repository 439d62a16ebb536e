"""Datasets from files.

Bytes to text (`lines`), text to rows (`formats`), rows to samples (`layout`, which knows the
published `shapes`), files (`read`); and what to do with samples (`split`, `stats`).
"""

from grpo_practice.data.formats import FileSource
from grpo_practice.data.read import ReadResult, read_samples

__all__ = ["FileSource", "ReadResult", "read_samples"]
