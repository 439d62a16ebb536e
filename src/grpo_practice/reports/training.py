"""Reports on training runs: at the end of the command, when stored, and as a forecast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report, number
from grpo_practice.reports.run_reports import Invocation
from grpo_practice.store import Store, branches, steps, trained_steps
from grpo_practice.store.identity import MODEL_SHA
from grpo_practice.store.queries import evaluations, runs, scores
from grpo_practice.store.records import Branch, CheckpointRow, StepRow
from grpo_practice.store.records import UpdateRow as UpdateRow


@dataclass(frozen=True, slots=True, repr=False)
class TrainReport(Report):
    """The current state of a training run."""

    schema: ClassVar = "grpo-practice.train/1"

    run: str
    branch: Branch
    simulated: bool
    steps: Sequence[StepRow]
    updates: Sequence[UpdateRow]
    checkpoints: Sequence[CheckpointRow]
    selection: Mapping[int, float]
    """Step → mean reward of the step's weights on the selection questions."""
    seconds: float
    """Wall time of this command."""

    @property
    def closed(self) -> int:
        """Number of completed steps."""
        return sum(row.closed for row in self.steps)

    @property
    def rewards(self) -> list[float | None]:
        """Mean rewards of the completed steps, in order."""
        return [(row.stats or {}).get("mean_reward") for row in self.steps if row.closed]

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return steps, mean rewards and the last checkpoint."""
        rewards = self.rewards
        last = self.checkpoints[-1] if self.checkpoints else None
        return [
            (f"{self.run}{' (simulated judge)' if self.simulated else ''}",),
            ("steps", f"{self.closed} of {len(self.steps)}"),
            *(
                [("mean reward", f"{number(rewards[0])} to {number(rewards[-1])}")]
                if rewards
                else []
            ),
            *([("selection", selection_text(self.selection))] if self.selection else []),
            *([("checkpoint", f"{last.path} (step {last.step})")] if last else []),
        ]


def selection_text(selection: Mapping[int, float]) -> str:
    """Return the last and the best selection score, each with its step."""
    best = max(selection, key=lambda step: selection[step])
    last = max(selection)
    text = f"{number(selection[last])} after step {last}"
    return text if best == last else f"{text}, best {number(selection[best])} after step {best}"


@dataclass(frozen=True, slots=True)
class TrainedParts:
    """The parts of a stored run that only training runs have."""

    base: str | None
    """Base model, as named in the configuration."""
    base_sha: str
    """Hash of the base model's weights, in hex."""
    settings: Mapping[str, Any]
    """Keys of `train:` that are part of the run's identity, flattened."""
    updates: Sequence[UpdateRow]
    checkpoints: Sequence[CheckpointRow]
    selection: Mapping[int, float]
    """Step → mean reward of the step's weights on the selection questions."""

    @property
    def recipe(self) -> str:
        """Sentence about the trained parameters and the hyperparameters."""
        of = self.settings.get
        rank = of("lora.r")
        what = "all weights" if rank is None else f"an adapter of rank {rank}"
        parts = [
            f"{what} by {of('loss')}",
            f"{of('prompts_per_step')} questions a step",
            f"{of('group_size')} rollouts each",
            f"learning rate {of('learning_rate')}",
        ]
        return ", ".join([*parts, f"beta {of('beta')}"] if of("beta") else parts)

    @property
    def by_step(self) -> dict[int, UpdateRow]:
        """Last update of each step."""
        return updates_by_step(self.updates)


def updates_by_step(updates: Sequence[UpdateRow]) -> dict[int, UpdateRow]:
    """Return the last update of each step."""
    return {update.step: update for update in updates}


def trained_parts(store: Store, branch: Branch) -> TrainedParts:
    """Return the parts of a run that only training runs have."""
    keys = {k.removeprefix("train."): v for k, v in branch.identity.items() if k[:6] == "train."}
    return TrainedParts(
        base=branch.agent.model,
        base_sha=str(branch.identity.get(MODEL_SHA, "")),
        settings=keys,
        updates=store.read(trained_steps.updates, branch),
        checkpoints=store.read(trained_steps.checkpoints, branch),
        selection=scored_steps(store, branch.run),
    )


def scored_steps(store: Store, run: str) -> dict[int, float]:
    """Return step → mean reward of the training run's weights on the selection dataset.

    Scores of weights from before a restart are excluded.
    """
    found = dict[int, float]()
    line = store.read(runs.newest_branch, run)
    if line is None:
        return found
    saved = {row.step: row.sha256 for row in store.read(trained_steps.checkpoints, line)}
    for step, sha, branch_id in store.read(evaluations.selections_of_weights, run):
        if sha == saved.get(step):
            mean = store.read(scores.mean_score, store.read(branches.load, branch_id))
            if mean is not None:
                found[step] = mean
    return dict(sorted(found.items()))


def train_report(
    store: Store,
    branch: Branch,
    invocation: Invocation,
    selection: Mapping[int, float],
    *,
    simulated: bool,
) -> TrainReport:
    """Return the report of a training run at the end of its command."""
    return TrainReport(
        run=branch.run,
        branch=branch,
        simulated=simulated,
        steps=store.read(steps.on_line, branch),
        updates=store.read(trained_steps.updates, branch),
        checkpoints=store.read(trained_steps.checkpoints, branch),
        selection=selection,
        seconds=invocation.seconds,
    )


@dataclass(frozen=True, slots=True, repr=False)
class TrainingForecast(Report):
    """Resources that a training run needs, measured on one step that is then discarded."""

    schema: ClassVar = "grpo-practice.train-forecast/1"

    run: str
    model: str
    steps: int
    steps_left: int
    rollouts: int
    """Number of rollouts per step."""
    trained: int
    """Number of trained parameters."""
    checkpoint_bytes: int
    step_s: float
    """Wall time of a step, without scoring."""
    tokens_in: int
    """Number of prompt tokens in the measured step."""
    tokens_out: int
    memory_bytes: int
    """Peak memory of the process, or of its GPU, in bytes."""
    device: str
    judged: bool
    """Whether a judge model scores each rollout; these numbers do not include its requests."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the resources of one step, and the time for the remaining steps."""
        left = self.step_s * self.steps_left
        time = f"{left:,.0f} s" if left < 120 else f"{left / 60:,.0f} minutes"
        return [
            (f"{self.run}: {self.steps_left} of {self.steps} steps are left",),
            ("model", f"{self.model}, {self.trained:,} parameters trained, on {self.device}"),
            ("a step", f"{self.rollouts} rollouts, {self.step_s:.1f} s without scoring"),
            ("tokens", f"{self.tokens_in:,} in, {self.tokens_out:,} out in the step measured"),
            ("time", f"about {time} for the steps left, without scoring"),
            ("memory", f"{self.memory_bytes / 1e9:.1f} GB at most so far"),
            ("checkpoint", f"{self.checkpoint_bytes / 1e6:.1f} MB, most of it optimiser state"),
            *(
                [("judge", f"asked {self.rollouts * self.steps_left:,} times; not counted above")]
                if self.judged
                else []
            ),
        ]


@dataclass(frozen=True, slots=True, repr=False)
class TrainedExport(Report):
    """Trained weights exported as a folder, with a file that describes the agent."""

    schema: ClassVar = "grpo-practice.trained-export/1"

    run: str
    step: int
    sha256: str
    """Hash of the checkpoint's weights, in hex."""
    path: Path
    """Folder that was written."""
    agent: Path
    """Agent file, for `eval --agent`."""
    weights: Path
    """Folder of the adapter, or of the whole model."""
    bytes: int
    """Size of the weights' folder."""
    model: str
    """Model name that the agent requests from the endpoint."""
    serve: str
    """Command that serves the weights."""
    library: str | None = None
    """Practice run of the same experiment; its library may be added to the prompt."""

    @property
    @override
    def next_command(self) -> str:
        """Command that evaluates the agent once an endpoint serves the weights."""
        return f"grpo-practice eval --agent {quote(str(self.agent))}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the origin, path and size of the weights, and the command that serves them."""
        return [
            (f"{self.run} after step {self.step}",),
            ("weights", f"{self.weights} ({self.bytes:,} bytes)"),
            ("agent", str(self.agent)),
            ("serve", self.serve),
        ]
