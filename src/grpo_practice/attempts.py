"""One attempt: play it, emit it, save it, count its failure; the same for all that play."""

from dataclasses import dataclass

from grpo_practice.events import Emit, RolloutFinished, RolloutStarted, span
from grpo_practice.failure_limit import FailureLimit
from grpo_practice.rollout import UNSCORED, AttemptKey, Player
from grpo_practice.store import Store
from grpo_practice.store.records import Branch, RolloutPrompt, Unscored
from grpo_practice.types import Library, Rollout, Verdict


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """System prompt of an attempt, and the library whose experiences stand in it."""

    text: str
    library: Library
    """One that is not stored has no id, and the rollout's row names none."""
    left_out: tuple[str, ...] = ()
    """Experiences of it that do not stand in the text."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of a step, or of an evaluation."""

    branch: Branch
    store: Store
    emit: Emit
    limit: FailureLimit

    async def play(
        self, key: AttemptKey, player: Player, system: SystemPrompt, weight: float = 1.0
    ) -> Rollout:
        """Play and score one attempt with this system prompt, and save it.

        The reward counts `weight` times in a mean.

        Raises:
            RunFailedError: Too many attempts have failed.
        """
        with span(self.emit, self._started(key)):
            rollout = await player.play(key, system.text)
        # No await between the event and the row's queue: a cancellation there would make the
        # counts of events and rows differ.
        self._finished(key.step, rollout, weight=weight)
        prompt = RolloutPrompt(
            player.scope(key).seed(), system.text, system.library.id or None, system.left_out
        )
        await self.store.save_rollout(self.branch, key.step, rollout, prompt)
        # After the row is queued: the error that ends the run must not cost this rollout.
        await self.limit.see(rollout)
        return rollout

    async def score_again(
        self, key: AttemptKey, player: Player, rollout_id: int, rollout: Rollout
    ) -> Rollout:
        """Score a rollout that another branch played; save the verdict, or why there is none.

        The rollout itself stays as it was played.

        Raises:
            RunFailedError: Too many attempts have failed.
        """
        with span(self.emit, self._started(key)):
            scored = await player.score(rollout, player.scope(key))
        self._finished(key.step, scored)  # as in `play`, before the row is queued
        verdict: Verdict | Unscored | None = scored.verdict
        if verdict is None and scored.played.reason in UNSCORED:
            verdict = Unscored(scored.played.reason, scored.played.error or "")
        if verdict is not None:
            await self.store.save_verdict(self.branch, rollout_id, verdict)
        await self.limit.see(scored)
        return scored

    def report_stored(self, step: int, rollout: Rollout, weight: float = 1.0) -> None:
        """Emit a rollout that an earlier command settled."""
        self._finished(step, rollout, stored=True, weight=weight)

    def _started(self, key: AttemptKey) -> RolloutStarted:
        return RolloutStarted(self.branch.run, key.step, key.slot, key.attempt)

    def _finished(
        self, step: int, rollout: Rollout, *, stored: bool = False, weight: float = 1.0
    ) -> None:
        run = self.branch.run
        self.emit(RolloutFinished.from_rollout(run, step, rollout, stored=stored, weight=weight))
