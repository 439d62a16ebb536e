"""Datasets from files: bytes to rows (`formats`), rows to samples (`shapes`), files (`read`)."""

from grpo_practice.data.read import ReadResult, read_samples

__all__ = ["ReadResult", "read_samples"]
