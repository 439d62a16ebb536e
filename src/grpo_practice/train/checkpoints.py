"""Saved weights of a training run, looked up by the run's name and a step."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from grpo_practice.core.errors import ConfigError
from grpo_practice.reports.training import scored_steps
from grpo_practice.run.library_refs import parse_step
from grpo_practice.run.weights import weights_sha
from grpo_practice.store import Store, branches, trained_steps
from grpo_practice.store.queries import runs
from grpo_practice.store.records import Branch, CheckpointRow, RunRow
from grpo_practice.store.trained_steps import checkpoint_folder


@dataclass(frozen=True, slots=True)
class TrainedWeights:
    """A checkpoint of a training run."""

    run: RunRow
    branch: Branch
    checkpoint: CheckpointRow
    folder: Path | None
    """Folder of the checkpoint; None if it is gone."""
    selection: float | None
    """Mean reward on the selection questions; None if the weights were not evaluated on them."""

    def checked(self) -> Path:
        """Return the folder; raise ConfigError unless it contains the weights that were saved."""
        if self.folder is None:
            raise ConfigError(
                f"the checkpoint {self.checkpoint.path} is gone",
                hint=f"`grpo-practice runs show {quote(self.run.name)}` lists the saved ones",
            )
        if weights_sha(self.folder) != self.checkpoint.sha256:
            raise ConfigError(
                f"{self.checkpoint.path} does not contain the weights that {self.run.name} saved",
                hint="restore them, or name another step with --step",
            )
        return self.folder


def trained_weights(store: Store, name: str, step: str = "last") -> TrainedWeights:
    """Return a training run's checkpoint after a step: `last`, `best` or a number.

    Raises:
        ConfigError: The run is of another kind, or has no such checkpoint.
    """
    run = store.read(runs.named, name)
    if run.kind != "train" or run.head_branch is None:
        raise ConfigError(
            f"{name} is a run of kind {run.kind}, which trains no weights",
            hint="`grpo-practice runs list` lists runs of kind train",
        )
    branch = store.read(branches.load, run.head_branch)
    saved = {row.step: row for row in store.read(trained_steps.checkpoints, branch)}
    if not saved:
        raise ConfigError(
            f"{name} has saved no checkpoint yet",
            hint="`grpo-practice train` resumes it",
        )
    scores = scored_steps(store, run.name)
    wanted = parse_step(step)
    if wanted == "best" and not scores:
        raise ConfigError(
            f"the best step of {name} is unknown, because its weights were not evaluated",
            hint="train with --set train.eval_every=N and practice.select_dataset, or name a step",
        )
    # With equal scores, choose the earlier step, which is closer to the base model.
    match wanted:
        case "last":
            at = max(saved)
        case "best":
            at = max(scores, key=lambda s: (scores[s], -s))
        case number:
            at = number
    if at not in saved:
        raise ConfigError(
            f"{name} has no checkpoint of step {at}",
            hint=f"--step {' or '.join(map(str, sorted(saved)))}",
        )
    folder = checkpoint_folder(store.path, saved[at].path)
    return TrainedWeights(run, branch, saved[at], folder, scores.get(at))
