"""Trials: new or doubtful experiences are shown to only half of a group's attempts.

The other half shows what the same question yields without them, at the same time and at no extra
cost. Every second attempt leaves out the experiences on trial that the others are shown. With an
odd number of attempts, the last one is shown the whole library.
"""

from collections.abc import Mapping, Sequence
from random import Random

from grpo_practice.core.types import Library
from grpo_practice.practice.evidence import NO_EVIDENCE, Evidence

DEALS = 8
"""Number of different ways in which a step divides the experiences, which bounds the number of
system prompts that an endpoint has to cache.
"""


def on_trial(library: Library, evidence: Mapping[str, Evidence]) -> tuple[str, ...]:
    """Return the ids of the experiences that are not yet proven."""
    found = {e.id: evidence.get(e.id, NO_EVIDENCE) for e in library.experiences}
    return tuple(id_ for id_, of in found.items() if not of.proven)


def left_out(
    trial: Sequence[str], seed: int, place: tuple[int, int, int], attempts: int
) -> frozenset[str]:
    """Return the experiences on trial that an attempt is not shown.

    `place` is its step, slot and number; `attempts` is the number of attempts in its group.
    """
    step, slot, attempt = place
    if attempt >= attempts - attempts % 2:
        return frozenset()
    # A resumed run must deal the same halves, so use Python's generator, whose shuffle is the same
    # in every version.
    dealt = [*trial]
    Random(f"{seed}|{step}|{slot % DEALS}").shuffle(dealt)
    half = (len(dealt) + slot % 2) // 2
    return frozenset(dealt[:half] if attempt % 2 == 0 else dealt[half:])
