"""Stops a run whose rollouts keep failing, before it pays for more of them."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from grpo_practice.errors import GrpoPracticeError, RunFailedError
from grpo_practice.types import Rollout

Land = Callable[[GrpoPracticeError], Awaitable[None]]
"""Waits for what is under way, before an error ends it."""


@dataclass(slots=True)
class FailureWatch:
    """Counts rollouts without a reward, of something planned (a step, an evaluation)."""

    what: str
    planned: int
    max_share: float
    land: Land
    _reasons: Counter[str] = field(default_factory=Counter)

    async def see(self, rollout: Rollout) -> None:
        """Take a rollout into account.

        Raises:
            RunFailedError: More than `max_share` of the planned rollouts have failed; what was
                under way has landed.
        """
        if rollout.verdict is not None:
            return
        self._reasons[f"{rollout.played.reason}: {rollout.played.error}"] += 1
        failed = self._reasons.total()
        if failed > self.max_share * self.planned:
            reason, times = self._reasons.most_common(1)[0]
            error = RunFailedError(
                f"{failed} of the {self.planned} rollouts of {self.what} failed, more than "
                f"max_failed_share ({self.max_share:g}) allows; {times} times: {reason}",
                hint="what was answered is stored: mend the cause and run the same command again",
            )
            await self.land(error)
            raise error
