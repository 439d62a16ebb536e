"""Plan and answers of a training run: values between its thread and the event loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

MAKING = ".making"
"""Folder in which a checkpoint is written before it is renamed."""
Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Way in which answers of an evaluation are sampled."""

    attempts: int
    """Answers to each question."""
    temperature: float
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Questions that weights are evaluated on while they are trained."""

    prompts: Sequence[Sequence[Message]]
    sampling: Sampling
    every: int
    """Steps between evaluations; the last step has one in any case."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Work of all ranks; the first one sends it to the others."""

    arguments: Mapping[str, Any]
    """Arguments of TRL's `GRPOConfig`, but for those of the device."""
    lora: Mapping[str, Any] | None
    """Arguments of PEFT's `LoraConfig`; None trains all weights."""
    model: Path
    """Folder of the base model."""
    prompts: Sequence[Sequence[Message]]
    """Messages of each question, step after step. Shape: [steps * prompts_per_step]."""
    prompts_per_step: int
    save_every: int | None
    """Steps between checkpoints; None saves none, not at the end either."""
    checkpoints: Path
    """Folder of the checkpoints of the branch."""
    resume: Path | None
    """Checkpoint to go on from."""
    seed: int
    scale_rewards: str
    skip_uniform: bool
    device: str
    selection: Selection | None = None
    """Questions of the evaluations on the way; None evaluates nothing."""

    def evaluates(self, step: int, *, last: bool) -> bool:
        """Return whether an evaluation follows a step."""
        return evaluates(self.selection.every if self.selection else 0, step, last=last)


def evaluates(every: int, step: int, *, last: bool) -> bool:
    """Return whether an evaluation every so many steps follows a step; 0 is none."""
    return bool(every) and (last or (step + 1) % every == 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it was sampled."""

    place: int
    """Place of its question in the plan's prompts."""
    attempt: int
    text: str
    tokens_in: int
    tokens_out: int
    truncated: bool
    """Whether it was cut at the most tokens that an answer may have."""


class Observer(Protocol):
    """Listener of the first rank's work; called on the training thread, and waited for."""

    def began(self, step: int) -> None:
        """Take that a step begins to be played."""
        ...

    def score(self, step: int, answers: Sequence[Answer]) -> list[float | None]:
        """Score the answers of a step; None where the verify function failed. Shape: [B] to [B]."""
        ...

    def updated(self, step: int, inner: int, logs: Mapping[str, float]) -> None:
        """Take what an update did; the last one of a step closes it."""
        ...

    def saved(self, step: int, folder: Path) -> None:
        """Take a checkpoint, which is whole and on disk."""
        ...

    def evaluated(self, step: int, answers: Sequence[Answer]) -> None:
        """Score the answers of an evaluation after a step, whose checkpoint is saved."""
        ...

    def stopping(self) -> bool:
        """Return whether the run ends after this step."""
        ...


def checkpoint_name(step: int) -> str:
    """Return the name of the folder of a checkpoint."""
    return f"step-{step:06}"
