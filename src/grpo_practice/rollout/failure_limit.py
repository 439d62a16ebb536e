"""Stops a run whose rollouts keep failing, before it pays for more rollouts."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from grpo_practice.core.errors import GrpoPracticeError, RunFailedError
from grpo_practice.core.text import similar
from grpo_practice.core.types import Rollout

Drain = Callable[[GrpoPracticeError], Awaitable[None]]
"""Function that lets requests in flight finish before the given error ends the run."""


@dataclass(slots=True)
class FailureLimit:
    """Counts the rollouts without a reward in a unit of planned work (a step or an evaluation)."""

    what: str
    planned: int
    max_share: float
    drain: Drain
    step: int = 0
    """Step at which a restart is possible; 0 for an evaluation."""
    _reasons: Counter[str] = field(default_factory=Counter)
    """Kind of message → number of errors of this kind."""
    _first: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    """Kind of message → reason and text of its first error."""

    async def record(self, rollout: Rollout) -> None:
        """Count a rollout if it failed.

        Raises:
            RunFailedError: More than `max_share` of the planned rollouts have failed; requests in
                flight have ended.
        """
        if rollout.verdict is not None:
            return
        said = f"{rollout.played.reason}: {rollout.played.error}"
        kind = _kind(said, rollout.sample.question)
        self._reasons[kind] += 1
        self._first.setdefault(kind, (rollout.played.reason, said))
        if self._reasons.total() > self.max_share * self.planned:
            error, failed = self._error(), self._reasons.total()
            # Wait first: the error cancels the siblings, and their replies may already be paid.
            await self.drain(error)
            # Siblings that failed during the wait are in the list of rollouts, so count them, too.
            raise error if failed == self._reasons.total() else self._error()

    def _error(self) -> RunFailedError:
        kind, times = self._reasons.most_common(1)[0]
        reason, text = self._first[kind]
        hint = "all answers are stored: fix the cause and run the same command again"
        if self.step and reason == "agent":  # an edited file makes another agent
            hint += f" (with --restart-step {self.step} if a file of the agent has changed)"
        return RunFailedError(
            f"{self._reasons.total()} of the {self.planned} rollouts of {self.what} failed, more "
            f"than max_failed_share ({self.max_share:g}) allows; {times} of them: {text}",
            hint=hint,
        )


def _kind(said: str, question: str) -> str:
    """Normalise an error message so that similar errors are counted together."""
    # An error message may quote the question as it is, or as its repr.
    for own in (question, repr(question)[1:-1]):
        said = said.replace(own, "…") if own else said
    return similar(said)
