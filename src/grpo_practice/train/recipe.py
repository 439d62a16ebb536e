"""From settings to TRL's: how a step is cut into batches, and every argument of `GRPOConfig`."""

from dataclasses import dataclass
from typing import Any

from grpo_practice.config.identity import temperature_of
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.config.schema.train import TrainSettings
from grpo_practice.errors import ConfigError

AT_ONCE = 8
"""Most answers whose loss is computed at once on a device."""
SHOWN = 4
"""Most numbers that a message offers."""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """How the answers of a step are divided: ranks, then batches that are added up."""

    ranks: int
    per_device: int
    """Answers whose loss is computed at once."""
    accumulation: int
    """Batches of a rank whose gradients make one update."""

    @property
    def per_rank(self) -> int:
        """Answers of one rank in a step; whole groups."""
        return self.per_device * self.accumulation


def batch_shape(settings: TrainSettings, ranks: int) -> BatchShape:
    """Return how a step is divided among ranks.

    Raises:
        ConfigError: Groups would have to be split; the hint has numbers that divide.
    """
    prompts = settings.prompts_per_step
    if prompts % ranks:
        near = -(-prompts // ranks) * ranks
        divisors = [n for n in range(prompts, 0, -1) if prompts % n == 0 and n < ranks]
        offered = " or ".join(map(str, divisors[:SHOWN]))
        raise ConfigError(
            f"train.prompts_per_step {prompts} cannot be divided among {ranks} ranks: the answers"
            " to a question stay on one",
            hint=f"--set train.prompts_per_step={near}, or start {offered} ranks",
        )
    answers = prompts // ranks * settings.group_size
    # With bnpo the number of answers at once is part of the loss, and memory must not change it.
    most = 1 if settings.memory == "low" and settings.loss != "bnpo" else AT_ONCE
    per_device = max(n for n in range(1, most + 1) if answers % n == 0)
    return BatchShape(ranks, per_device, answers // per_device)


def grpo_arguments(
    config: PracticeConfig, shape: BatchShape, *, steps: int, folder: str
) -> dict[str, Any]:
    """Return the arguments of TRL's `GRPOConfig`, but for those of the device.

    Questions come in the order of the plan, and all that is saved, logged or evaluated is done by
    callbacks: nothing is left to defaults that differ from what `docs/train.md` says.
    """
    train = settings_of(config)
    low, high = train.clip
    return {
        "output_dir": folder,
        "per_device_train_batch_size": shape.per_device,
        "gradient_accumulation_steps": shape.accumulation,
        "steps_per_generation": shape.accumulation,
        "num_generations": train.group_size,
        "num_iterations": train.update_epochs,
        "max_steps": steps * train.update_epochs,
        "learning_rate": train.rate,
        "lr_scheduler_type": train.scheduler,
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "max_grad_norm": train.max_grad_norm,
        "epsilon": low,
        "epsilon_high": high,
        "beta": train.beta,
        # Else a mixture of experts has its router's loss added.
        "router_aux_loss_coef": 0.0,
        # By default TRL weights the divergence by the ratio (DeepSeek-V3.2), unlike the GRPO paper.
        "use_bias_correction_kl": False,
        "loss_type": train.loss,
        "importance_sampling_level": train.importance,
        "scale_rewards": train.scale_rewards,
        "mask_truncated_completions": train.mask_truncated,
        "temperature": temperature_of(config),
        "top_p": 1.0,
        "top_k": 0,
        "max_completion_length": train.max_output_tokens,
        "generation_kwargs": {
            "min_tokens" if train.generate == "vllm" else "min_new_tokens": train.min_output_tokens
        },
        "use_vllm": train.generate == "vllm",
        "gradient_checkpointing": train.memory == "low",
        "torch_compile": train.compile,
        "seed": train.seed,
        "shuffle_dataset": False,
        "remove_unused_columns": False,
        "save_strategy": "no",
        "eval_strategy": "no",
        "logging_strategy": "steps",
        "logging_steps": 1,
        # Else a loss that is no number would be logged as 0.
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "trust_remote_code": False,
        "push_to_hub": False,
    }


def settings_of(config: PracticeConfig) -> TrainSettings:
    """Return the `train:` section; raise ValueError where the loader let none pass."""
    if config.train is None:
        raise ValueError("load_practice(trains=True) returns no config without `train:`")
    return config.train
