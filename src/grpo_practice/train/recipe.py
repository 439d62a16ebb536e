"""Convert settings to TRL's: the batches of a step, and all arguments of `GRPOConfig`."""

from dataclasses import dataclass
from typing import Any

from grpo_practice.config.identity import temperature_of
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.config.schema.train import TrainSettings
from grpo_practice.core.errors import ConfigError

ANSWERS_PER_LOSS = 8
"""Maximum number of answers per loss computation on a device."""
SHOWN = 4
"""Maximum number of values that a message suggests."""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Division of a step's answers among ranks, then into batches that are accumulated."""

    per_device: int
    """Number of answers per loss computation."""
    accumulation: int
    """Number of batches per rank whose gradients form one update."""


def batch_shape(settings: TrainSettings, ranks: int) -> BatchShape:
    """Return how a step is divided among the ranks.

    Raises:
        ConfigError: Groups would have to be split; the hint suggests values that fit.
    """
    prompts = settings.prompts_per_step
    if prompts % ranks:
        near = -(-prompts // ranks) * ranks
        divisors = [n for n in range(prompts, 0, -1) if prompts % n == 0 and n < ranks]
        offered = " or ".join(map(str, divisors[:SHOWN]))
        raise ConfigError(
            f"train.prompts_per_step {prompts} cannot be divided among {ranks} ranks: all answers"
            " to a question must be on one rank",
            hint=f"--set train.prompts_per_step={near}, or start {offered} ranks",
        )
    answers = prompts // ranks * settings.group_size
    # With bnpo, the batch size affects the loss, so the memory setting must not change it.
    most = 1 if settings.memory == "low" and settings.loss != "bnpo" else ANSWERS_PER_LOSS
    per_device = max(n for n in range(1, most + 1) if answers % n == 0)
    return BatchShape(per_device, answers // per_device)


def grpo_arguments(
    config: PracticeConfig, shape: BatchShape, *, steps: int, folder: str
) -> dict[str, Any]:
    """Return the arguments of TRL's `GRPOConfig`, except the device arguments.

    Questions keep the order of the plan. Callbacks do all saving, logging and evaluation. TRL
    defaults that differ from `docs/train.md` are overridden.
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
        # TRL counts updates, not steps.
        "max_steps": steps * train.update_epochs,
        "learning_rate": train.rate,
        "lr_scheduler_type": train.scheduler,
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "max_grad_norm": train.max_grad_norm,
        "epsilon": low,
        "epsilon_high": high,
        "beta": train.beta,
        # Otherwise TRL adds the router's auxiliary loss for mixture-of-experts models.
        "router_aux_loss_coef": 0.0,
        # By default TRL weights the KL term by the ratio (DeepSeek-V3.2), unlike the GRPO paper.
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
        # Otherwise a NaN or infinite loss would be logged as 0.
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "trust_remote_code": False,
        "push_to_hub": False,
    }


def settings_of(config: PracticeConfig) -> TrainSettings:
    """Return the `train:` section; raise ValueError for a config without this section."""
    if config.train is None:
        raise ValueError("load_practice(trains=True) returns no config without `train:`")
    return config.train
