"""Plays and scores groups of rollouts with limited concurrency, independently of experiences."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from grpo_practice.core.calls import Address, Chat, Scope
from grpo_practice.core.errors import (
    EndpointError,
    GrpoPracticeError,
    JudgeError,
    VerifyError,
    boundary,
)
from grpo_practice.core.events import Emit, ScoringFinished, ScoringStarted, silent
from grpo_practice.core.played import PlayedRollout, PlayedTurn
from grpo_practice.core.text import cut
from grpo_practice.core.types import OWN_FAILURES, Group, Rollout, Sample, Trajectory, Verdict
from grpo_practice.llm.concurrency import ADMITTED_PER_TICK
from grpo_practice.llm.ledgered import AgentChat
from grpo_practice.rollout.agents import Agent, RolloutContext, being_cancelled

UNSCORED = ("verify", "judge")
"""Reasons of errors that occur after the answer was given: the answer can be scored again."""
SAID_CHARS = 4_000
"""Maximum length of a text from a verify function, a judge or an error, in characters."""

Verify = Callable[[Sample, str, Chat, PlayedRollout | None], Awaitable[Verdict]]
"""Function that scores a response and may call a judge through the chat; the rollout is None if no
calls of it are stored. Raises VerifyError, JudgeError.
"""


@dataclass(frozen=True, slots=True)
class Player:
    """Everything that a rollout needs except its question."""

    agent: Agent
    student: Callable[[Scope], AgentChat]
    judge: Callable[[Scope], Chat]
    verify: Verify
    run_seed: int
    task_timeout_s: float
    emit: Emit = silent
    turns: Callable[[Address], Sequence[PlayedTurn]] | None = None
    """Function that reads the turns of a rollout; None if the rollouts have no stored calls."""

    def scope(self, key: "AttemptKey") -> Scope:
        """Return the scope of the rollout's own calls."""
        address = Address(key.branch_id, key.step, key.slot, key.attempt, "play")
        return Scope(address, self.run_seed, key.sample.sha, key.epoch)

    async def play_and_score(self, key: "AttemptKey", system: str) -> Rollout:
        """Play one attempt and score it. A failure is part of the rollout, never a reward of 0."""
        scope = self.scope(key)
        context = RolloutContext(self.student(scope), scope, self.task_timeout_s)
        try:
            played = await self.agent(key.sample.question, system, context)
        except GrpoPracticeError:
            # A refused key or a cap is not a failure of this attempt: it stops the run.
            raise
        except Exception as e:  # noqa: BLE001 - an agent's bug is that rollout's error
            played = Trajectory(
                "error", reason="agent", error=cut(f"{type(e).__name__}: {e}", SAID_CHARS)
            )
        # Count a strike only for our own deadline in a running process, not for a kill.
        strikes = key.strikes + (played.reason == "time")
        rollout = Rollout(key.slot, key.attempt, key.sample, played, strikes=strikes)
        return await self.score(rollout, scope)

    async def score(self, rollout: Rollout, scope: Scope) -> Rollout:
        """Return the rollout with its verdict, or with the error that prevented a verdict.

        The response is kept in both cases. If an earlier attempt at scoring failed, the response is
        scored again.
        """
        played = rollout.played
        if played.outcome == "error" and played.reason in UNSCORED:
            played = replace(played, outcome="ok", reason=None, error=None)
        if not played.answered:
            return replace(rollout, verdict=own_failure(played))
        judge = self.judge(replace(scope, address=replace(scope.address, stage="judge")))
        try:
            with self._scoring(scope), boundary(VerifyError, "the verify function failed"):
                told = self._told(played, scope.address)
                verdict = await self.verify(rollout.sample, played.response, judge, told)
            return replace(rollout, played=played, verdict=_bounded(verdict))
        except (JudgeError, EndpointError) as e:
            reason, error = "judge", str(e)
        except VerifyError as e:
            reason, error = "verify", str(e)
        except asyncio.CancelledError:
            # Foreign code may raise its own CancelledError, which must not cancel the run.
            if being_cancelled():
                raise
            reason, error = "verify", "the verify function raised CancelledError"
        failed = replace(played, outcome="error", reason=reason, error=cut(error, SAID_CHARS))
        return replace(rollout, played=failed)

    def _told(self, played: Trajectory, at: Address) -> PlayedRollout | None:
        """Return the rollout as a verify function sees it; the stored one looks the same."""
        if self.turns is None:
            return None
        # The database stores milliseconds, and scoring a rollout again must give the same.
        return PlayedRollout(played.outcome, round(played.model_s, 3), partial(self.turns, at))

    @contextmanager
    def _scoring(self, scope: Scope) -> Iterator[None]:
        """Emit an event when scoring starts, and another when the block ends."""
        self.emit(ScoringStarted(scope.address))
        try:
            yield
        finally:
            self.emit(ScoringFinished(scope.address))


def _bounded(verdict: Verdict) -> Verdict:
    """Shorten the texts in a verdict: the user's code may return megabytes."""
    critique, extracted = verdict.critique, verdict.extracted
    return replace(
        verdict,
        critique=cut(critique, SAID_CHARS) if critique else critique,
        extracted=cut(extracted, SAID_CHARS) if extracted else extracted,
    )


def own_failure(played: Trajectory) -> Verdict | None:
    """Return reward 0 for a failure that is certainly the model's own; otherwise None."""
    if played.outcome in OWN_FAILURES or played.outcome == "truncated":
        return Verdict(0.0, played.error or played.outcome)
    if played.outcome == "limit" and played.reason != "time":
        return Verdict(0.0, played.error or f"ended by its limit of {played.reason}")
    return None


@dataclass(frozen=True, slots=True)
class AttemptKey:
    """Key of an attempt: its branch, step, group and number."""

    branch_id: int
    step: int
    epoch: int
    slot: int
    attempt: int
    sample: Sample
    strikes: int = 0


@dataclass(slots=True)
class GroupJob:
    """A group to play: stored attempts are used, the others are played."""

    branch_id: int
    step: int
    epoch: int
    slot: int
    sample: Sample
    attempts: int
    """Number of attempts. The job can be played again after this number has been increased."""
    stored: Mapping[int, Rollout] = field(default_factory=dict)
    """Attempt → stored rollout; a rollout that is not settled is played again."""
    done: dict[int, Rollout] = field(default_factory=dict)

    def open_attempts(self) -> Iterator[AttemptKey]:
        """Yield the attempts that must be played, and put the settled ones into `done`."""
        for attempt in range(self.attempts):
            if attempt in self.done:  # the group was played before and has grown
                continue
            known = self.stored.get(attempt)
            if known is not None and known.settled:
                self.done[attempt] = known
                continue
            strikes = known.strikes if known else 0
            yield AttemptKey(
                self.branch_id, self.step, self.epoch, self.slot, attempt, self.sample, strikes
            )

    @property
    def group(self) -> Group:
        """The finished group, in attempt order."""
        return Group(self.slot, self.sample, [self.done[a] for a in sorted(self.done)])


async def play_groups(
    jobs: Iterable[GroupJob],
    play: Callable[[AttemptKey], Awaitable[Rollout]],
    *,
    concurrency: int,
    on_group: Callable[[GroupJob], Awaitable[None]],
) -> None:
    """Play every attempt of every job, with `concurrency` workers that start them in order.

    `jobs` is consumed lazily, so it may be arbitrarily long. `on_group` is awaited once per job, in
    the order in which the groups end. An error from `play` or `on_group` stops all workers.
    """
    feed = _attempts(jobs)

    async def worker() -> None:
        # One iterator for all workers: next() does not await, so no two get the same attempt.
        for job, key in feed:
            if key is not None:
                job.done[key.attempt] = await play(key)
            # No await since the line above, so that exactly one worker finds the group complete.
            if len(job.done) == job.attempts:
                await on_group(job)

    async with task_group() as tasks:
        for started in range(concurrency):
            if started and started % ADMITTED_PER_TICK == 0:
                await asyncio.sleep(
                    0
                )  # thousands must not start in one iteration of the event loop
            tasks.create_task(worker())


def _attempts(jobs: Iterable[GroupJob]) -> Iterator[tuple[GroupJob, AttemptKey | None]]:
    """Yield each attempt to play with its job; yield a complete job once, with None."""
    for job in jobs:
        # A list, since building it fills `done`, and an empty one means that the group has ended.
        keys = list(job.open_attempts())
        if not keys:
            yield job, None
        for key in keys:
            yield job, key


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a TaskGroup and raise its first error unwrapped: that error cancelled the rest."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as e:
        raise first_error(e) from None


def begin(tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Return a new task in the group; if the group is ending, start nothing.

    Raises:
        CancelledError: The group is ending, by an error of its own or by a cancellation.
    """
    try:
        return tasks.create_task(work)
    except RuntimeError:
        work.close()  # else Python warns of a coroutine that was never awaited
        # An error of the group may not exist: after a cancellation, this one would be reported.
        raise asyncio.CancelledError from None


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the most informative error: one of our own error types, if there is one."""
    flat = list[BaseException]()
    for error in group.exceptions:
        flat.append(first_error(error) if isinstance(error, BaseExceptionGroup) else error)
    return next((e for e in flat if isinstance(e, GrpoPracticeError)), flat[0])
