"""Score, report and store the steps of a training run; this half runs on the event loop."""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_practice.core.calls import Usage
from grpo_practice.core.errors import RunFailedError
from grpo_practice.core.events import RolloutFinished, RolloutStarted, StepStarted, WeightsUpdated
from grpo_practice.core.types import Group, Rollout, Sample, Trajectory
from grpo_practice.rollout.failure_limit import Drain, FailureLimit
from grpo_practice.rollout.groups.informative import status_of
from grpo_practice.rollout.groups.step_sums import group_row, mean_reward, step_stats
from grpo_practice.rollout.play import AttemptKey, Player, task_group
from grpo_practice.run.weights import weights_sha, weights_size
from grpo_practice.store import Store
from grpo_practice.store.records import (
    Branch,
    CheckpointRow,
    RolloutPrompt,
    StepRow,
    TrainedStep,
    UpdateRow,
)
from grpo_practice.train.rewards import is_uniform
from grpo_practice.train.work import Answer

NOTHING_LEARNT = 20
"""Number of consecutive steps without an informative group after which a run ends."""


@dataclass(slots=True)
class OpenStep:
    """A step whose answers are scored and whose updates are in progress."""

    groups: Sequence[Group]
    stats: dict[str, Any]
    began: float
    updates: list[UpdateRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run, and the components that score and store its steps."""

    branch: Branch
    store: Store
    player: Player
    rows: Mapping[int, StepRow]
    """Steps by number."""
    samples: Mapping[int, Sample]
    """Samples of the steps by id."""
    instructions: str
    seed: int
    update_epochs: int
    max_failed_share: float
    drain: Drain
    ranks: int
    folder: Path
    """Folder of the database; stored checkpoint paths are relative to it."""
    begun: dict[int, float] = field(default_factory=dict)
    """Step → its start time."""
    open: dict[int, OpenStep] = field(default_factory=dict)
    shas: dict[int, bytes] = field(default_factory=dict)
    """Step → hash of its checkpoint."""
    uniform: list[int] = field(default_factory=list)
    """Most recent consecutive steps without an informative group."""

    async def began(self, step: int) -> None:
        """Report the start of a step."""
        plan = self.rows[step].plan
        groups = len(plan.slots)
        self.player.emit(StepStarted(step, plan.epoch, groups, plan.rollouts, None))
        self.begun[step] = time.monotonic()

    async def score(self, step: int, answers: Sequence[Answer]) -> list[float | None]:
        """Score a step's answers with as much concurrency as the verify function allows.

        Raises:
            RunFailedError: Too many answers cannot be scored.
        """
        began = self.begun.pop(step)
        plan = self.rows[step].plan
        emit, run = self.player.emit, self.branch.run
        n, seconds = len(answers), time.monotonic() - began
        # Stops a step early if the judge is down, instead of paying for every answer.
        limit = FailureLimit(f"step {step}", n, self.max_failed_share, self.drain, step)

        async def scored(answer: Answer) -> Rollout:
            slot = answer.place % len(plan.slots)
            key = AttemptKey(
                self.branch.id,
                step,
                plan.epoch,
                slot,
                answer.attempt,
                self.samples[plan.slots[slot][0]],
            )
            emit(RolloutStarted(run, step, slot, answer.attempt))
            # The answers of a step are sampled together, so each gets an equal share of the time.
            rollout = Rollout(slot, answer.attempt, key.sample, trajectory(answer, seconds / n))
            rollout = await self.player.score(rollout, self.player.scope(key))
            emit(RolloutFinished.from_rollout(run, step, rollout))
            await limit.record(rollout)
            return rollout

        async with task_group() as tasks:  # the first error cancels the other tasks
            under_way = [tasks.create_task(scored(answer)) for answer in answers]
        rollouts = [task.result() for task in under_way]
        self.open[step] = self._opened(rollouts, began)
        return [rollout.reward for rollout in rollouts]

    def _opened(self, rollouts: Sequence[Rollout], began: float) -> OpenStep:
        by_slot = defaultdict[int, list[Rollout]](list)
        for rollout in rollouts:
            by_slot[rollout.slot].append(rollout)
        groups = [Group(slot, got[0].sample, got) for slot, got in sorted(by_slot.items())]
        usage = [rollout.played.usage for rollout in rollouts]
        stats = {
            "mean_reward": mean_reward(groups),
            "tokens_in": sum(u.tokens_in or 0 for u in usage),
            "tokens_out": sum(u.tokens_out or 0 for u in usage),
            "ranks": self.ranks,
        }
        return OpenStep(groups, stats, began)

    async def updated(self, step: int, inner: int, logs: Mapping[str, float]) -> None:
        """Record an update; after the last update of a step, store the whole step.

        Raises:
            RunFailedError: The loss is not finite, or nothing was learnt for many steps.
        """
        opened, now = self.open[step], time.monotonic()
        loss, norm = logs["loss"], logs["grad_norm"]
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise RunFailedError(
                f"the loss of step {step} is {loss:g} and its gradient norm {norm:g}, so the"
                " weights are unusable from here on and are not saved",
                hint="resume from the last checkpoint with a smaller train.learning_rate:"
                " --restart-step N (`runs show` lists the steps of the checkpoints)",
            )
        rewards = [[rollout.reward for rollout in group.rollouts] for group in opened.groups]
        opened.updates.append(
            UpdateRow(
                step=step,
                inner=inner,
                loss=loss,
                learning_rate=logs["learning_rate"],
                grad_norm=norm,
                entropy=logs.get("entropy"),
                kl=logs.get("kl"),
                clip_low=logs.get("clip_ratio/low_mean"),
                clip_high=logs.get("clip_ratio/high_mean", logs.get("cispo_clip_ratio")),
                uniform_share=sum(map(is_uniform, rewards)) / len(rewards),
                tokens=opened.stats["tokens_in"] + opened.stats["tokens_out"],
                seconds=now - opened.began - sum(u.seconds for u in opened.updates),
            )
        )
        if len(opened.updates) == self.update_epochs:
            await self._close(step, self.open.pop(step))

    async def _close(self, step: int, opened: OpenStep) -> None:
        size = len(opened.groups[0].rollouts)
        groups = [
            group_row(group, status_of(group, truth=True), None, planned=size, library_id=None)
            for group in opened.groups
        ]
        seconds = sum(update.seconds for update in opened.updates)
        stats = step_stats(opened.groups, groups) | opened.stats | {"seconds": round(seconds, 3)}
        prompt = RolloutPrompt(self.seed, self.instructions, None)
        rollouts = [rollout for group in opened.groups for rollout in group.rollouts]
        last = opened.updates[-1]
        # Do not await between emitting the event and queueing the row: see `events`.
        self.player.emit(
            WeightsUpdated(
                step,
                opened.stats["mean_reward"],
                sum(row.informative for row in groups),
                last.loss,
                last.kl,
                seconds,
            )
        )
        await self.store.close_trained(
            self.branch, step, TrainedStep(rollouts, prompt, groups, opened.updates, stats)
        )
        self._check_learning(step, any(row.informative for row in groups))

    def _check_learning(self, step: int, taught: bool) -> None:
        if taught:
            self.uniform.clear()
        else:
            self.uniform.append(step)
        if len(self.uniform) >= NOTHING_LEARNT:
            raise RunFailedError(
                f"in the last {NOTHING_LEARNT} steps, all rewards of each question were equal,"
                " so there is nothing to learn from",
                hint=f"grpo-practice runs show {self.branch.run} shows the mean reward: near 0, the"
                " questions are too hard for the model; near 1, too easy; otherwise a larger"
                " train.group_size or temperature may help",
            )

    async def saved(self, step: int, folder: Path) -> None:
        """Record a checkpoint that is complete on disk."""
        # Hash gigabytes on a thread, because the event loop must keep scoring.
        sha, size = await asyncio.to_thread(lambda: (weights_sha(folder), weights_size(folder)))
        at = folder.relative_to(self.folder) if folder.is_relative_to(self.folder) else folder
        self.shas[step] = sha
        await self.store.add_checkpoint(self.branch, CheckpointRow(step, str(at), sha, size))


def trajectory(answer: Answer, seconds: float) -> Trajectory:
    """Convert an answer that took `seconds` to sample into a trajectory."""
    return Trajectory(
        outcome="truncated" if answer.truncated else "ok" if answer.text.strip() else "empty",
        response=answer.text,
        turns=1,
        usage=Usage(tokens_in=answer.tokens_in, tokens_out=answer.tokens_out),
        model_s=seconds,
    )
