"""Which questions a step leaves out: half of those whose last group had nothing to compare."""

from grpo_practice.canonical import derive_seed
from grpo_practice.types import Sample

AGAIN = 0.5
"""The chance of such a question to be played all the same."""


def played_again(sample: Sample, epoch: int, run_seed: int) -> bool:
    """The draw. Like the seed of a request it depends on nothing that a restart changes."""
    return derive_seed(run_seed, "skip", sample.sha, epoch, 0, 0) < AGAIN * 2**31
