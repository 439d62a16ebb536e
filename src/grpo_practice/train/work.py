"""Plan and answers of a training run, exchanged between its thread and the event loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

MAKING = ".making"
"""Folder in which a checkpoint is written before it is renamed."""
Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings of an evaluation."""

    attempts: int
    """Number of answers per question."""
    temperature: float
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Questions on which the weights are evaluated during training."""

    prompts: Sequence[Sequence[Message]]
    sampling: Sampling
    every: int
    """Steps between evaluations; the last step is always evaluated."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Work of all ranks, sent by the first rank to the others."""

    arguments: Mapping[str, Any]
    """Arguments of TRL's `GRPOConfig`, except the device arguments."""
    lora: Mapping[str, Any] | None
    """Arguments of PEFT's `LoraConfig`; None trains all weights."""
    model: Path
    """Folder of the base model."""
    prompts: Sequence[Sequence[Message]]
    """Messages of each question, in the order of the steps. Shape: [steps * prompts_per_step]."""
    prompts_per_step: int
    save_every: int | None
    """Steps between checkpoints; None saves no checkpoints, not even at the end."""
    checkpoints: Path
    """Folder for the checkpoints of the branch."""
    resume: Path | None
    """Checkpoint to resume from."""
    seed: int
    scale_rewards: str
    skip_uniform: bool
    device: str
    selection: Selection | None = None
    """Questions for evaluations during training; None disables them."""

    def step_of(self, updates: int) -> tuple[int, int]:
        """Return the step of the update that follows this many updates, and its place there."""
        # TRL counts updates: a step has `num_iterations` of them.
        inner: int = self.arguments["num_iterations"]
        return divmod(updates, inner)

    def evaluates(self, step: int, *, last: bool) -> bool:
        """Return whether an evaluation follows this step."""
        return evaluates(self.selection.every if self.selection else 0, step, last=last)


def evaluates(every: int, step: int, *, last: bool) -> bool:
    """Return whether an evaluation follows this step, given the interval `every` (0: never)."""
    return bool(every) and (last or (step + 1) % every == 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """One sampled answer."""

    place: int
    """Index of its question in the plan's prompts."""
    attempt: int
    text: str
    tokens_in: int
    tokens_out: int
    truncated: bool
    """Whether the answer was cut off at the maximum number of tokens."""


class Observer(Protocol):
    """Observer of the first rank; the training thread calls it and waits for each call."""

    def began(self, step: int) -> None:
        """Record that a step starts."""
        ...

    def score(self, step: int, answers: Sequence[Answer]) -> list[float | None]:
        """Score the answers of a step; None if the verify function failed. Shape: [B] to [B]."""
        ...

    def updated(self, step: int, inner: int, logs: Mapping[str, float]) -> None:
        """Record the metrics of an update; the last update of a step closes the step."""
        ...

    def saved(self, step: int, folder: Path) -> None:
        """Record a checkpoint that is complete on disk."""
        ...

    def evaluated(self, step: int, answers: Sequence[Answer]) -> None:
        """Score the answers of an evaluation after a step that has a saved checkpoint."""
        ...

    def stopping(self) -> bool:
        """Return whether the run should end after this step."""
        ...


def checkpoint_name(step: int) -> str:
    """Return the name of a checkpoint's folder."""
    return f"step-{step:06}"
