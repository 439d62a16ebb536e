"""A stored rollout: question, transcript, and score."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from grpo_practice.calls import Message
from grpo_practice.reports.base import Report, number
from grpo_practice.reports.documents import usage_document
from grpo_practice.types import Rollout


@dataclass(frozen=True, slots=True, repr=False)
class RolloutReport(Report):
    """One attempt at one question of a run."""

    run: str
    step: int
    attempts: int
    """Attempts that are planned for its question."""
    rollout: Rollout
    sections: Sequence[tuple[str, str]]
    """Heading and text of each turn, and of how the attempt ended."""

    @property
    def question(self) -> str:
        """The question."""
        return self.rollout.sample.question

    @property
    def transcript(self) -> Sequence[Message]:
        """The messages, as they were sent and received."""
        return self.rollout.played.transcript

    @property
    def reward(self) -> float | None:
        """The reward in [0, 1]; None when it failed or could not be scored."""
        return self.rollout.reward

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.rollout/1`."""
        rollout, played, verdict = self.rollout, self.rollout.played, self.rollout.verdict
        return {
            "schema": "grpo-practice.rollout/1",
            "run": self.run,
            "step": self.step,
            "slot": rollout.slot,
            "attempt": rollout.attempt,
            "question": self.question,
            "answer": rollout.sample.answer,
            "outcome": played.outcome,
            "reason": played.reason,
            "error": played.error,
            "response": played.response,
            "reward": self.reward,
            "critique": verdict.critique if verdict else None,
            "transcript": [dict(message) for message in self.transcript],
            "usage": usage_document(played.usage),
            "seconds": played.model_s,
        }

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the turns, and the reward."""
        at = f"{self.run}, step {self.step}, group {self.rollout.slot}"
        return [
            (f"{at}, attempt {self.rollout.attempt + 1} of {self.attempts}",),
            *self.sections,
            ("outcome", self.rollout.played.outcome),
            ("reward", number(self.reward)),
        ]
