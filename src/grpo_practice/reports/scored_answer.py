"""Report on a single answer that was scored."""

from dataclasses import dataclass
from typing import ClassVar

from grpo_practice.core.types import Verdict
from grpo_practice.reports.base import Report


@dataclass(frozen=True, slots=True, repr=False)
class ScoredAnswer(Report):
    """Verdict of a verify function on one answer, and the time it took."""

    schema: ClassVar = "grpo-practice.verdict/1"
    in_document: ClassVar = (
        "verify",
        "verdict.reward",
        "verdict.critique",
        "verdict.extracted",
        "seconds",
    )

    verify: str
    verdict: Verdict
    seconds: float
