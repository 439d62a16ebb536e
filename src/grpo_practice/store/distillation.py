"""Counts of what became of the informative groups of a step, as its stats keep them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self, TypeVar

from grpo_practice.types import QuarantineRule, RefusedRule, TeacherFailure

DISTILLATION = "distillation"
"""The key of a step's stats under which its `Distillation` stands."""
HARMLESS: frozenset[RefusedRule] = frozenset({"outvoted", "duplicate", "held"})
"""Rules that lose nothing: questions decide, the library says exactly this already, or a person
is going to decide."""

K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True)
class Distillation:
    """Counts over the informative groups of a step, or of several steps.

    Groups first, then what the teacher made of them, then what came of that.
    """

    informative: int = 0
    compared: int = 0
    """Groups whose comparison could be read."""
    failed: Mapping[TeacherFailure, int] = field(default_factory=dict)
    """Groups that taught nothing because the teacher failed, by the kind of failure."""
    unsummarised: int = 0
    """Attempts without a summary; where enough others were left, these were compared."""
    shortened: int = 0
    """Attempts whose transcript was too long for the teacher."""
    cut_chars: int = 0
    """Characters of these that it did not read."""
    lessons: int = 0
    proposals: int = 0
    """Changes of the library that single groups asked for, refused ones included."""
    confirmed: int = 0
    """Experiences that single groups confirmed."""
    refused: Mapping[RefusedRule, int] = field(default_factory=dict)
    """Operations, proposed or merged, that could not be taken; outvoted and held ones not counted.
    """
    outvoted: int = 0
    held: int = 0
    """New experiences, and new texts of experiences, that wait for a person's approval."""
    quarantined: Mapping[QuarantineRule, int] = field(default_factory=dict)
    """Operations, proposed or merged, whose text may not enter a library."""
    lost: int = 0
    """Proposals of which nothing is left: they, or all that the merge made of them, were refused
    or quarantined. Harmless refusals do not count."""
    removed: int = 0
    """Experiences that went because more spoke against them than for them."""
    experiences: int = 0
    """Size of the library in the end."""

    @classmethod
    def of(cls, stats: Mapping[str, Any] | None) -> Self | None:
        """Return what the stats of a step hold; None for a step that is not closed."""
        stored = (stats or {}).get(DISTILLATION)
        if stored is None:
            return None
        return cls(**{f.name: stored[f.name] for f in fields(cls) if f.name in stored})

    @classmethod
    def total(cls, steps: Sequence[Self]) -> Self:
        """Return the sum over steps, in order; the size of the library is that of the last one."""
        none, sums = cls(), dict[str, Any]()
        for name in (f.name for f in fields(cls)):
            parts = [getattr(step, name) for step in steps]
            sums[name] = added(parts) if isinstance(getattr(none, name), Mapping) else sum(parts)
        return cls(**{**sums, "experiences": steps[-1].experiences if steps else 0})

    def document(self) -> dict[str, Any]:
        """Return the counts as JSON; `of` reads it."""
        return asdict(self)


def frequencies(found: Iterable[K]) -> dict[K, int]:
    """Return how often each value comes, the commonest first, equal ones by name."""
    counts = Counter(found)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def added(parts: Iterable[Mapping[K, int]]) -> dict[K, int]:
    """Return the sum of such counts, in the same order."""
    total = Counter[K]()
    for part in parts:
        total.update(part)
    return frequencies(total.elements())
