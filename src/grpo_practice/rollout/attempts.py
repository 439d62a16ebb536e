"""One attempt in any kind of run: play it, emit its events, save it, count its failure."""

from dataclasses import dataclass

from grpo_practice.core.calls import content_texts
from grpo_practice.core.errors import PausedError
from grpo_practice.core.events import Emit, Notice, RolloutFinished, RolloutStarted, span
from grpo_practice.core.types import Library, Rollout, Trajectory, Verdict
from grpo_practice.rollout.failure_limit import Drain, FailureLimit
from grpo_practice.rollout.play import UNSCORED, AttemptKey, Player
from grpo_practice.store import Store
from grpo_practice.store.records import Branch, RolloutPrompt, Unscored

LOOKED_AT = 3
"""Number of rollouts with experiences whose requests are checked."""
SEND_IT = (
    "let the agent send its system prompt to the model (docs/agents.md), or set"
    " agent.ignores_system: true if the agent uses the prompt in another way"
)


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """System prompt of an attempt, and the library whose experiences it contains."""

    text: str
    library: Library
    """Library of the prompt. A library that is not stored has no ID, and the rollout's row then
    has no library.
    """
    left_out: tuple[str, ...] = ()
    """IDs of the library's experiences that are not in the text."""


@dataclass(slots=True)
class SystemCheck:
    """Checks whether an agent's requests contain the experiences in its system prompt.

    An agent that drops its system prompt learns nothing, whatever lessons practice finds.
    """

    emit: Emit
    drain: Drain | None = None
    """Function that lets requests in flight finish before the run pauses; None shows a notice
    instead of pausing.
    """
    _without: int = 0
    """Number of rollouts with experiences whose requests contained no experience."""
    _over: bool = False

    async def record(self, system: SystemPrompt, rollout: Rollout, step: int) -> None:
        """Check a rollout of a step; a rollout without a request does not count.

        Raises:
            PausedError: No request of the first rollouts contained any experience.
        """
        given = [e.text for e in system.library.experiences if e.text in system.text]
        if self._over or not given or not rollout.played.turns:
            return
        if any(is_sent(text, rollout.played) for text in given):
            self._over = True
            return
        self._without += 1
        if self._without < LOOKED_AT:
            return
        self._over = True
        what = (
            f"no request of the first {LOOKED_AT} rollouts with experiences contained any of them:"
            " the agent ignores its system prompt"
        )
        if self.drain is None:
            self.emit(Notice(f"{what}; {SEND_IT}"))
            return
        hint = f"{SEND_IT}; then run the same command again"
        if step:  # an edited file makes another agent, so the run can only continue by a restart
            hint += f" (with --restart-step {step} if a file of the agent has changed)"
        error = PausedError(what, hint=hint)
        await self.drain(error)
        raise error


def is_sent(text: str, played: Trajectory) -> bool:
    """Return whether a request of the play contains the text, regardless of line breaks."""
    messages = (m for m in played.transcript if m.get("role") != "assistant")
    sent = " ".join(part for m in messages for part in content_texts(m.get("content")))
    return _words(text) in _words(sent)


def _words(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of a step, or of an evaluation."""

    branch: Branch
    store: Store
    emit: Emit
    limit: FailureLimit
    check: SystemCheck | None
    """Check of the agent's requests; None if the agent may omit its system prompt."""

    async def play_attempt(self, key: AttemptKey, player: Player, system: SystemPrompt) -> Rollout:
        """Play and score one attempt with this system prompt, and save it.

        Raises:
            RunFailedError: Too many attempts have failed.
            PausedError: The agent ignores its system prompt; see `SystemCheck`.
        """
        with span(self.emit, self._started(key)):
            rollout = await player.play_and_score(key, system.text)
        # No await between the event and queueing the row: a cancellation in between would make
        # the counts of events and rows differ.
        self._finished(key.step, rollout)
        prompt = RolloutPrompt(
            player.scope(key).seed(), system.text, system.library.id or None, system.left_out
        )
        await self.store.save_rollout(self.branch, key.step, rollout, prompt)
        # Only after the row is queued: the error that ends the run must not lose this rollout.
        await self.limit.record(rollout)
        if self.check is not None:
            await self.check.record(system, rollout, key.step)
        return rollout

    async def score_again(
        self, key: AttemptKey, player: Player, rollout_id: int, rollout: Rollout
    ) -> Rollout:
        """Score a rollout from another branch; save the verdict, or why there is no verdict.

        The rollout itself stays unchanged.

        Raises:
            RunFailedError: Too many attempts have failed.
        """
        with span(self.emit, self._started(key)):
            scored = await player.score(rollout, player.scope(key))
        self._finished(key.step, scored)  # as in `play_attempt`, before the row is queued
        verdict: Verdict | Unscored | None = scored.verdict
        if verdict is None and scored.played.reason in UNSCORED:
            verdict = Unscored(scored.played.reason, scored.played.error or "")
        if verdict is not None:
            await self.store.save_verdict(self.branch, rollout_id, verdict)
        await self.limit.record(scored)
        return scored

    def report_stored(self, step: int, rollout: Rollout) -> None:
        """Emit the event for a rollout that an earlier command settled."""
        self._finished(step, rollout, stored=True)

    def _started(self, key: AttemptKey) -> RolloutStarted:
        return RolloutStarted(self.branch.run, key.step, key.slot, key.attempt)

    def _finished(self, step: int, rollout: Rollout, *, stored: bool = False) -> None:
        run = self.branch.run
        self.emit(RolloutFinished.from_rollout(run, step, rollout, stored=stored))
