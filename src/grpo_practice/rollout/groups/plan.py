"""Determines the samples of each step: a pure function, run and stored before the first call."""

import random
from collections.abc import Mapping, Sequence

from grpo_practice.core.types import PlannedStep


def plan_practice(
    sample_ids: Sequence[int],
    *,
    epochs: int,
    batch_size: int,
    attempts: int | Mapping[int, int],
    seed: int | None,
    drop_last: bool,
) -> list[PlannedStep]:
    """Plan every step of every epoch, numbered from 0 across epochs.

    Each epoch plays each sample once, in a new order determined by `seed` (None keeps the dataset's
    order). The last batch of an epoch may be smaller; `drop_last` drops such a batch. `attempts` is
    the number of attempts at each question, or at all of them.
    """
    steps = list[PlannedStep]()
    for epoch in range(epochs):
        order = list(sample_ids)
        if seed is not None:
            # Not the module's generator: other code may have used it before.
            random.Random(f"{seed}|{epoch}").shuffle(order)
        for batch, start in enumerate(range(0, len(order), batch_size)):
            ids = order[start : start + batch_size]
            if drop_last and len(ids) < batch_size:
                break
            slots = tuple((i, attempts if isinstance(attempts, int) else attempts[i]) for i in ids)
            steps.append(PlannedStep(len(steps), epoch, batch, slots))
    return steps
