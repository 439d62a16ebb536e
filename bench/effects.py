"""The true worth of each experience of a library in a world, and the best ones to have."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from grpo_practice.sim.world import World

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

EXACT = 12
"""Up to this many experiences every subset is looked at."""
SUBSETS = 4_000
"""How many random subsets stand for all those of a larger library."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Worth of each experience, in mean score (0.01 is one point). Shape of both: [m]."""

    keys: tuple[str, ...]
    leave_one_out: tuple[float, ...]
    """Score of the whole library minus the score without it."""
    in_part: tuple[float, ...]
    """Mean over random parts of the rest: score with it minus score without it."""


def effects(
    world: World, questions: Sequence[str], keys: Sequence[str], pi: float = 0.5
) -> Effects:
    """Return what each experience is worth in the whole library and in random parts of it.

    Exact up to 12 experiences; beyond that 4,000 random parts stand for all.

    Args:
        world: Where they are used.
        questions: The questions scored.
        keys: The experiences of the whole library.
        pi: Chance of each of the others to be in a random part.
    """
    import numpy as np

    keys = tuple(dict.fromkeys(keys))
    score, m = _scorer(world, questions, keys), len(keys)
    if m <= EXACT:
        parts = _all_subsets(m)
        weights = (pi**parts * (1 - pi) ** (1 - parts)).prod(axis=1)
    else:
        parts = (np.random.default_rng(world.seed).random((SUBSETS, m)) < pi).astype(np.float64)
        weights = np.ones(SUBSETS)

    def change(rows: "Floats", j: int) -> "Floats":
        return score(_with(rows, j, 1.0)) - score(_with(rows, j, 0.0))

    full = np.ones((1, m))
    alone = tuple(float(change(full, j)[0]) for j in range(m))
    in_part = tuple(float(np.average(change(parts, j), weights=weights)) for j in range(m))
    return Effects(keys, alone, in_part)


def best_subset(
    world: World, questions: Sequence[str], keys: Sequence[str], budget: float
) -> tuple[str, ...]:
    """Return the experiences with the best mean score that fit into a budget of tokens, in order.

    Exact up to 12 experiences; beyond that the one that helps most is added until none helps.
    """
    import numpy as np

    keys = tuple(dict.fromkeys(keys))
    score = _scorer(world, questions, keys)
    tokens = np.array([world.item(k).tokens for k in keys])

    def best(rows: "Floats") -> "Floats":
        fitting = rows[rows @ tokens <= budget]
        top: Floats = fitting[int(score(fitting).argmax())]
        return top

    if len(keys) <= EXACT:
        chosen = best(_all_subsets(len(keys)))
    else:
        chosen, before = np.zeros(len(keys)), None
        while before is None or (chosen != before).any():
            before = chosen
            chosen = best(np.vstack([before, np.maximum(before, np.eye(len(keys)))]))
    return tuple(k for k, taken in zip(keys, chosen, strict=True) if taken)


def _scorer(
    world: World, questions: Sequence[str], keys: Sequence[str]
) -> Callable[["Floats"], "Floats"]:
    """Return a function from subsets (rows of 0 and 1) to mean scores. Shape: [s, m] -> [s]."""
    import numpy as np

    rows = [world.logits(q, keys) for q in questions]
    table = np.array([row for row in rows if row is not None]).reshape(-1, len(keys) + 1)
    tokens = np.array([world.item(k).tokens for k in keys])

    def score(subsets: "Floats") -> "Floats":
        cost = world.dilution * (subsets @ tokens) / 1_000
        logit = table[:, 0] + subsets @ table[:, 1:].T - cost[:, None]
        total: Floats = (1 / (1 + np.exp(-logit))).sum(axis=1)
        return total / len(rows)

    return score


def _all_subsets(m: int) -> "Floats":
    """Return every subset of m, the empty one first. Shape: [2^m, m]."""
    import numpy as np

    return np.array(list(product((0.0, 1.0), repeat=m))).reshape(2**m, m)


def _with(rows: "Floats", j: int, value: float) -> "Floats":
    """Return the subsets with experience j put in (1) or taken out (0)."""
    changed = rows.copy()
    changed[:, j] = value
    return changed
