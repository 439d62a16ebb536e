"""The `train:` section: GRPO on weights, with the questions and the scoring of practice."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from grpo_practice.config.schema.base import Elsewhere, Extend, Model, Names, Operational, Table

Loss = Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"]
Scheduler = Literal["constant", "linear", "cosine"]
_FREE_IN_TUNE = frozenset(
    {"model", "revision", "steps", "epochs", "device", "tune", "eval_every", "save_every"}
)
"""Keys that a trial cannot change: all trials train one model, equally long, on one machine."""


class LoraSettings(Model):
    """Low-rank adapter, trained instead of the full weights."""

    r: int = Field(16, ge=1, le=1_024)
    """Rank of the adapter."""
    alpha: int = Field(32, ge=1)
    """Scale of the adapter: its output is multiplied by alpha / r."""
    targets: Names = Field(("all-linear",), strict=False)
    """Modules that get an adapter, by the suffixes of their names; `all-linear` means all linear
    layers except the last."""


class TuneSettings(Model):
    """Search for better settings; see `train tune`."""

    space: Table[Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Key of `train:` → a list of values, or `{low, high, log}`."""
    seed: int = 0
    """Seed of the search."""


class TrainSettings(Model):
    """Settings of GRPO on weights. docs/train.md compares them with other programs' settings."""

    model: Elsewhere[str] = Field(min_length=1)
    """Folder or hub name of the base model; the run's identity includes the hash of the weights."""
    revision: Elsewhere[str | None] = None
    """Commit, tag or branch of the base model on the hub."""
    prompts_per_step: int = Field(8, ge=1)
    """Questions per step; each becomes one group."""
    group_size: int = Field(8, ge=2)
    """Rollouts per question (G in the paper); at least 2, because rollouts are compared."""
    update_epochs: int = Field(1, ge=1)
    """Number of weight updates with the rollouts of one step."""
    learning_rate: float | None = Field(None, gt=0)
    """Learning rate; null is 1e-5 with `lora`, 1e-6 without."""
    scheduler: Scheduler = "constant"
    """Learning rate schedule. Only a run with a constant rate can be extended."""
    clip: tuple[float, float] = Field((0.2, 0.2), strict=False)
    """Distance below and above 1 at which the probability ratio is clipped. With `cispo`, the
    second number is the maximum ratio itself."""
    beta: float = Field(0.0, ge=0)
    """Weight of the KL divergence from the base model; 0 needs no reference model."""
    loss: Loss = "dapo"
    """How token losses are aggregated into one loss."""
    importance: Literal["token", "sequence"] = "token"
    """Level at which the probability ratio is computed; `sequence` is GSPO."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Standard deviation that divides advantages: the group's, the step's, or `none`."""
    temperature: float | None = Field(None, gt=0)
    """Sampling temperature; null is `practice.rollout_temperature`."""
    min_output_tokens: int = Field(0, ge=0)
    """Minimum number of tokens in an answer."""
    max_output_tokens: int = Field(512, ge=1)
    """Maximum number of tokens in an answer; a longer answer is truncated and scored as it is."""
    mask_truncated: bool = False
    """Whether truncated answers are excluded from the loss."""
    skip_uniform: bool = True
    """Whether groups with equal rewards, which do not change the update, are excluded from it;
    applies only if `beta` is 0 and `loss` is not `bnpo`."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Maximum norm of the gradient; larger gradients are clipped."""
    lora: LoraSettings | None = LoraSettings()
    """Adapter to train; null trains all weights."""
    steps: Extend[int | None] = Field(None, ge=1)
    """Number of steps; null derives it from `epochs`."""
    epochs: Extend[int] = Field(1, ge=1)
    """Passes over the practice data; used if `steps` is null."""
    seed: int = 0
    """Seed for the order of questions, for sampling and for a new adapter."""
    save_every: Operational[int] = Field(10, ge=1)
    """Steps between checkpoints; the last step always has one."""
    eval_every: Operational[int | None] = Field(None, ge=1)
    """Steps between evaluations on `practice.select_dataset`, which is then required; null disables
    evaluation."""
    device: Operational[Literal["auto", "cpu", "cuda", "mps"]] = "auto"
    """Device to train on."""
    memory: Operational[Literal["normal", "low"]] = "normal"
    """`low` recomputes activations and processes one answer at a time: slower, but needs less
    memory."""
    compile: Operational[bool] = False
    """Whether `torch.compile` compiles the model."""
    generate: Literal["transformers", "vllm"] = "transformers"
    """Library that generates rollouts; `vllm` must be installed and needs a GPU."""
    tune: Elsewhere[TuneSettings] = TuneSettings()
    """Search for better settings; see `train tune`."""

    @property
    def rate(self) -> float:
        """Learning rate, or its default if none is set."""
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
                f" {self.clip[1]:g} would cut every update: for example, write clip: [0.2, 5.0]"
            )
        known = set(type(self).model_fields) - _FREE_IN_TUNE
        for key in self.tune.space:
            if key.partition(".")[0] not in known:
                raise ValueError(
                    f"tune.space.{key} is not a key of `train:` that a trial may change"
                )
        return self
