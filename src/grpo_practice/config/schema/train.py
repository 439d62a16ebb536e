"""The `train:` section: GRPO on weights, over the questions and the scoring of practice."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from grpo_practice.config.schema.base import Elsewhere, Extend, Model, Names, Operational, Table

Loss = Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"]
Scheduler = Literal["constant", "linear", "cosine"]
_FREE_IN_TUNE = frozenset(
    {"model", "revision", "steps", "epochs", "device", "tune", "eval_every", "save_every"}
)
"""Keys that no trial may change: all trials train the same model, as long, on the same machine."""


class LoraSettings(Model):
    """Low-rank adapter that is trained in place of the weights."""

    r: int = Field(16, ge=1, le=1_024)
    """Rank of the adapter."""
    alpha: int = Field(32, ge=1)
    """Scale of the adapter; it is multiplied by alpha / r."""
    targets: Names = Field(("all-linear",), strict=False)
    """Modules that get one, by the ends of their names; `all-linear` is each linear layer but the
    last."""


class TuneSettings(Model):
    """Search for better settings; see `train tune`."""

    space: Table[Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Key of `train:` → a list of values, or `{low, high, log}`."""
    seed: int = 0
    """Seed of the search."""


class TrainSettings(Model):
    """Settings of GRPO on weights. docs/train.md has them beside those of other programs."""

    model: Elsewhere[str] = Field(min_length=1)
    """Folder of the base model, or its name on the hub; a run is bound to the weights' hash."""
    revision: Elsewhere[str | None] = None
    """Commit, tag or branch of the base model on the hub."""
    prompts_per_step: int = Field(8, ge=1)
    """Questions of one step; each becomes one group."""
    group_size: int = Field(8, ge=2)
    """Rollouts of a question (G in the paper); with one there is nothing to compare."""
    update_epochs: int = Field(1, ge=1)
    """Updates of the weights with the rollouts of one step."""
    learning_rate: float | None = Field(None, gt=0)
    """Learning rate; null is 1e-5 with `lora`, 1e-6 without."""
    scheduler: Scheduler = "constant"
    """Course of the learning rate. Only a constant one lets a run be made longer."""
    clip: tuple[float, float] = Field((0.2, 0.2), strict=False)
    """How far the ratio of probabilities may go below and above 1 before it is clipped. With
    `cispo` the second number is the largest ratio itself."""
    beta: float = Field(0.0, ge=0)
    """Weight of the KL divergence from the base model; 0 needs no second model."""
    loss: Loss = "dapo"
    """How the losses of tokens become one number."""
    importance: Literal["token", "sequence"] = "token"
    """Level of the ratio of probabilities; `sequence` is GSPO."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Deviation by which advantages are divided: that of the group, of the step, or none."""
    temperature: float | None = Field(None, gt=0)
    """Sampling temperature; null is `practice.rollout_temperature`."""
    min_output_tokens: int = Field(0, ge=0)
    """Fewest tokens of an answer."""
    max_output_tokens: int = Field(512, ge=1)
    """Most tokens of an answer; a longer one is cut, and scored as it is."""
    mask_truncated: bool = False
    """Whether answers that were cut are left out of the loss."""
    skip_uniform: bool = True
    """Whether groups of equal rewards are left out of the update, which they do not change; only
    where `beta` is 0, and `loss` is not `bnpo`."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Norm to which gradients are clipped."""
    lora: LoraSettings | None = LoraSettings()
    """Adapter that is trained; null trains all weights."""
    steps: Extend[int | None] = Field(None, ge=1)
    """Steps of the run; null is as many as `epochs` make."""
    epochs: Extend[int] = Field(1, ge=1)
    """Passes over the practice data, where `steps` is null."""
    seed: int = 0
    """Seed of the order of questions, of sampling and of a new adapter."""
    save_every: Operational[int] = Field(10, ge=1)
    """Steps between checkpoints; the last step has one in any case."""
    eval_every: Operational[int | None] = Field(None, ge=1)
    """Steps between evaluations on `practice.select_dataset`, which it needs; null: none."""
    device: Operational[Literal["auto", "cpu", "cuda", "mps"]] = "auto"
    """Device to train on."""
    memory: Operational[Literal["normal", "low"]] = "normal"
    """`low` computes activations twice and takes one answer at a time: slower, and smaller."""
    compile: Operational[bool] = False
    """Whether the model is compiled by `torch.compile`."""
    generate: Literal["transformers", "vllm"] = "transformers"
    """Library that plays rollouts; `vllm` has to be installed, and needs a GPU."""
    tune: Elsewhere[TuneSettings] = TuneSettings()
    """Search for better settings."""

    @property
    def rate(self) -> float:
        """Learning rate, with its default filled in."""
        return self.learning_rate or (1e-5 if self.lora else 1e-6)

    @field_validator("clip")
    @classmethod
    def _clips(cls, clip: tuple[float, float]) -> tuple[float, float]:
        low, high = clip
        if not (0 < low < 1 and high > 0):
            raise ValueError("should be two numbers: the first between 0 and 1, the second above 0")
        return clip

    @model_validator(mode="after")
    def _sound(self) -> "TrainSettings":
        if self.min_output_tokens > self.max_output_tokens:
            raise ValueError("min_output_tokens is more than max_output_tokens")
        if self.loss == "cispo" and self.clip[1] < 1:
            raise ValueError(
                "with loss cispo the second number of clip is the largest ratio itself, and"
                f" {self.clip[1]:g} would cut every update: write clip: [0.2, 5.0], say"
            )
        known = set(type(self).model_fields) - _FREE_IN_TUNE
        for key in self.tune.space:
            if key.partition(".")[0] not in known:
                raise ValueError(f"tune.space.{key} is no key of `train:` that a trial may change")
        return self
