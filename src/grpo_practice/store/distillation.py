"""Counts of the results of distilling a step's informative groups, as stored in its stats."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self, TypeVar

from grpo_practice.core.types import QuarantineRule, RefusedRule, TeacherFailure

DISTILLATION = "distillation"
"""Key of a step's stats that holds its `Distillation`."""
HARMLESS: frozenset[RefusedRule] = frozenset({"outvoted", "duplicate", "held"})
"""Rules whose refusals lose nothing: the votes rejected the operation, the library already
contains the text, or a person will decide.
"""

K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True)
class Distillation:
    """Counts over the informative groups of one or more steps.

    The fields count the groups first, then the teacher's lessons and proposals, then their
    outcomes.
    """

    informative: int = 0
    compared: int = 0
    """Groups with a readable comparison."""
    failed: Mapping[TeacherFailure, int] = field(default_factory=dict)
    """Groups that taught nothing because the teacher failed, by kind of failure."""
    unsummarised: int = 0
    """Attempts without a summary; if enough others remained, those were compared."""
    shortened: int = 0
    """Attempts with a transcript too long for the teacher."""
    cut_chars: int = 0
    """Characters cut from these transcripts."""
    lessons: int = 0
    proposals: int = 0
    """Changes to the library proposed by individual groups, including refused ones."""
    confirmed: int = 0
    """Experiences confirmed by individual groups."""
    refused: Mapping[RefusedRule, int] = field(default_factory=dict)
    """Refused operations, proposed or merged, except for outvoted and held ones."""
    outvoted: int = 0
    held: int = 0
    """New experiences and new texts of experiences that wait for a person's approval."""
    quarantined: Mapping[QuarantineRule, int] = field(default_factory=dict)
    """Operations, proposed or merged, with a text that may not enter a library."""
    lost: int = 0
    """Proposals without any effect, because the proposal itself or all operations that the merge
    made from it were refused or quarantined. Harmless refusals do not count.
    """
    removed: int = 0
    """Experiences removed because more votes were against them than for them."""
    experiences: int = 0
    """Size of the library at the end."""

    @classmethod
    def of(cls, stats: Mapping[str, Any] | None) -> Self | None:
        """Return the counts in the stats of a step; None for a step that is not closed."""
        stored = (stats or {}).get(DISTILLATION)
        if stored is None:
            return None
        return cls(**{f.name: stored[f.name] for f in fields(cls) if f.name in stored})

    @classmethod
    def total(cls, steps: Sequence[Self]) -> Self:
        """Return the sum over steps in order; the size of the library is that of the last step."""
        none, sums = cls(), dict[str, Any]()
        for name in (f.name for f in fields(cls)):
            parts = [getattr(step, name) for step in steps]
            sums[name] = added(parts) if isinstance(getattr(none, name), Mapping) else sum(parts)
        return cls(**{**sums, "experiences": steps[-1].experiences if steps else 0})

    def document(self) -> dict[str, Any]:
        """Return the counts as JSON, which `of` can read."""
        return asdict(self)


def frequencies(found: Iterable[K]) -> dict[K, int]:
    """Return how often each value occurs, most frequent first, ties by name."""
    return _ordered(Counter(found))


def added(parts: Iterable[Mapping[K, int]]) -> dict[K, int]:
    """Return the sum of these counts for each value, in the order of `frequencies`."""
    total = Counter[K]()
    for part in parts:
        total.update(part)
    return _ordered(+total)


def _ordered(counts: Mapping[K, int]) -> dict[K, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
