"""A training run as it is stored, without torch: three steps, one of them on two branches.

Branch 1 has the steps 0 to 2 and a checkpoint after step 1; branch 2 goes on from there, and has
step 2 again. A step asks four questions: one that all attempts answer, one that none does, one that
teaches, and one that teaches after the first step. An attempt of step 1 cannot be scored.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from grpo_practice.config import load_practice
from grpo_practice.core.calls import Usage
from grpo_practice.core.types import Group, PlannedStep, Rollout, Sample, Trajectory, Verdict
from grpo_practice.rollout.groups.informative import status_of
from grpo_practice.rollout.groups.step_sums import group_row, mean_reward, step_stats
from grpo_practice.run.weights import weights_sha
from grpo_practice.store import Store, datasets
from grpo_practice.store.records import (
    Branch,
    CheckpointRow,
    RolloutPrompt,
    TrainedStep,
    UpdateRow,
)
from grpo_practice.store.trained_steps import checkpoints_root
from grpo_practice.train.job import train_spec
from grpo_practice.verify.resolve import resolve

RUN = "toy/train"
CONFIG = """
exp_id: toy
data: {practice_dataset_name: train}
evaluation:
  verify: exact
  data: {dataset: test}
  agent:
    model: {model_provider: {model: sim}}
    agent: {instructions: Count.}
train:
  {model: models/base, prompts_per_step: 4, group_size: 4, steps: 3, save_every: 2, beta: 0.04}
"""
BASE_SHA = bytes(range(32))
QUESTIONS = [Sample(f"How many legs have {n} cats?", str(4 * n)) for n in range(1, 5)]
REWARDS: Sequence[Sequence[Sequence[float]]] = (
    ((1, 1, 1, 1), (0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0)),
    ((1, 1, 1, 1), (0, 0, 0, 0), (1, 1, 0, 0), (1, 0, 0, 0)),
    ((1, 1, 1, 1), (0, 0, 0, 0), (1, 1, 1, 0), (1, 1, 0, 0)),
)
"""Reward of each attempt. Shape: [step, question, attempt]"""
UNSCORED = (1, 3, 3)
"""Step, slot and attempt that the verify function could not score."""
CUT = (0, 1, 3)
"""Step, slot and attempt that was cut at its most tokens."""


def stored_training(store: Store, folder: Path) -> None:
    """Write the run, and the folders of its checkpoints; the config is put into the folder."""
    config = folder / "train.yaml"
    config.write_text(CONFIG)
    dataset, _ = store.add_dataset("train", QUESTIONS, origin="made", replace=False)
    loaded = load_practice(config, [], {}, trains=True)
    spec = train_spec(loaded, resolve("exact", {}, None, folder), dataset, BASE_SHA)
    ids = store.read(datasets.sample_ids, dataset.id)
    plan = [PlannedStep(step, step, 0, tuple((id, 4) for id in ids)) for step in range(3)]
    with store.lock(RUN):
        branch = store.begin(spec, lambda *_: plan)
        with store.invocation(branch, "grpo-practice train --config train.yaml"):
            for step in range(3):
                _close(store, branch, plan[step])
            _save(store, branch, 1)
        branch = store.begin(spec, lambda *_: plan, restart_step=2, again=True)
        with store.invocation(branch, "grpo-practice train --config train.yaml"):
            _close(store, branch, plan[2])
            _save(store, branch, 2)


def training_database(folder: Path) -> Path:
    """Return a database that has the run and nothing else."""
    folder.mkdir(exist_ok=True)
    with Store(folder / "t.db") as store:
        stored_training(store, folder)
    return folder / "t.db"


def _close(store: Store, branch: Branch, plan: PlannedStep) -> None:
    """Play a step as the rewards above have it, and store it."""
    samples = store.read(datasets.samples_of, plan)
    groups = [
        Group(slot, sample, [_rollout(plan.step, slot, sample, n) for n in range(4)])
        for slot, sample in enumerate(samples)
    ]
    rows = [
        group_row(group, status_of(group, truth=True), None, planned=4, library_id=None)
        for group in groups
    ]
    updates = [
        UpdateRow(
            step=plan.step,
            inner=0,
            loss=0.5 - 0.25 * plan.step,
            learning_rate=1e-5,
            grad_norm=1.5,
            entropy=2.0 - 0.5 * plan.step,
            kl=0.002 * plan.step,
            clip_low=0.0,
            clip_high=0.125,
            uniform_share=sum(row.status == "uniform" for row in rows) / len(rows),
            tokens=16 * 14,
            seconds=2.0,
        )
    ]
    stats = step_stats(groups, rows) | {
        "mean_reward": mean_reward(groups),
        "tokens_in": 16 * 10,
        "tokens_out": 16 * 4,
        "seconds": 2.0,
    }
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    prompt = RolloutPrompt(0, "Count.", None)
    done = TrainedStep(rollouts, prompt, rows, updates, stats)
    asyncio.run(store.close_trained(branch, plan.step, done))


def _rollout(step: int, slot: int, sample: Sample, attempt: int) -> Rollout:
    reward = REWARDS[step][slot][attempt]
    gold = str(sample.answer)
    played = Trajectory(
        outcome="truncated" if (step, slot, attempt) == CUT else "ok",
        response=gold if reward else f"{gold}{attempt}",
        turns=1,
        usage=Usage(tokens_in=10, tokens_out=4),
        model_s=0.125,
    )
    if (step, slot, attempt) == UNSCORED:
        error = "ValueError: no idea"
        played = replace(played, outcome="error", reason="verify", error=error)
        return Rollout(slot, attempt, sample, played)
    return Rollout(slot, attempt, sample, played, Verdict(reward, extracted="4"))


def _save(store: Store, branch: Branch, step: int) -> None:
    """Make a checkpoint of a few bytes, and store that it is there."""
    run = checkpoints_root(store.path) / branch.run.replace("/", ".")
    folder = run / f"b{branch.id}" / f"step-{step:06}"
    folder.mkdir(parents=True)
    weights = f"weights of step {step}".encode()
    (folder / "adapter_model.safetensors").write_bytes(weights)
    (folder / "adapter_config.json").write_text("{}")
    path = folder.relative_to(store.path.resolve().parent)
    row = CheckpointRow(step, str(path), weights_sha(folder), len(weights))
    asyncio.run(store.add_checkpoint(branch, row))
