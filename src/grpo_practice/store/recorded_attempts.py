"""Attempts that an agent made before the run, stored as the rollouts of its steps."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from grpo_practice.core.types import PlannedStep, Rollout, Sample, Trajectory, Verdict
from grpo_practice.store import datasets, rollouts
from grpo_practice.store.records import Branch, RolloutPrompt

if TYPE_CHECKING:
    from grpo_practice.data.attempts import Recorded


def fill(
    db: sqlite3.Connection,
    branch: Branch,
    plan: PlannedStep,
    attempts_at: Callable[[str], Sequence["Recorded"]],
) -> None:
    """Store the recorded attempts at each question of a step, unless they are already stored.

    An attempt without a recorded reward has no verdict yet. `attempts_at` takes a sample's hash.
    """
    there = "SELECT EXISTS (SELECT 1 FROM rollouts WHERE branch_id = ? AND step = ?)"
    if db.execute(there, (branch.id, plan.step)).fetchone()[0]:
        return
    # The system prompt is unknown, unless it is one of the recorded messages.
    prompt = RolloutPrompt(0, "", None)
    for slot, sample in enumerate(datasets.samples_of(db, plan)):
        saves = [
            rollouts.Save(branch.id, plan.step, rollout, prompt, branch.verifier_id, attempt.before)
            for n, attempt in enumerate(attempts_at(sample.sha))
            for rollout in [_rollout(slot, n, sample, attempt)]
        ]
        rollouts.save(db, saves)


def _rollout(slot: int, number: int, sample: Sample, attempt: "Recorded") -> Rollout:
    messages = json.loads(attempt.before)
    asked = [called for m in messages if isinstance(called := m.get("tool_calls"), list)]
    played = Trajectory(
        "ok",
        attempt.response,
        turns=1 + sum(message.get("role") == "assistant" for message in messages),
        tool_calls=sum(map(len, asked)),
    )
    verdict = None if attempt.reward is None else Verdict(attempt.reward)
    return Rollout(slot, number, sample, played, verdict)
