"""Report on one answer that was scored by itself."""

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from grpo_practice.reports.base import Report
from grpo_practice.types import Verdict


@dataclass(frozen=True, slots=True, repr=False)
class ScoredAnswer(Report):
    """A verify function's verdict on one answer, and how long it took."""

    verify: str
    verdict: Verdict
    seconds: float

    @override
    def document(self) -> dict[str, Any]:
        """Return what `verify --json` prints."""
        return {
            "schema": "grpo-practice.verdict/1",
            "verify": self.verify,
            "reward": self.verdict.reward,
            "critique": self.verdict.critique,
            "extracted": self.verdict.extracted,
            "seconds": round(self.seconds, 3),
            "exit": 0,
        }
