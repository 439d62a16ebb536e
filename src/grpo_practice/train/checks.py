"""Checks before weights are loaded: dependencies, base model, chat template, context and disk."""

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.config.schema.train import LoraSettings, TrainSettings
from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.findings import Finding, ok, problem
from grpo_practice.core.text import brief, count
from grpo_practice.core.types import PlannedStep
from grpo_practice.rollout.groups.plan import plan_practice
from grpo_practice.run.weights import check_no_code, check_weights, local_folder, model_folder
from grpo_practice.train.loading import keep_quiet, load_tokenizer
from grpo_practice.train.recipe import settings_of
from grpo_practice.train.work import Message, evaluates

NEEDED = ("torch", "trl", "peft")
"""Modules that the extra `[train]` installs."""
_FLOAT = 4
"""Number of bytes per parameter in single precision."""


def check_installed() -> None:
    """Raise ConfigError if the extra is not installed, without importing it."""
    # Use find_spec, because importing torch takes seconds.
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"training needs {', '.join(NEEDED)}, and {' and '.join(missing)} cannot be found",
            hint="pip install 'grpo-practice[train]'; on Linux plain torch is the CUDA build, some"
            " 3 GB in 28 packages: without a GPU install its CPU build first",
        )


def check_machine(settings: TrainSettings, ranks: int) -> None:
    """Raise ConfigError if this machine cannot run with these settings."""
    import torch

    if settings.generate == "vllm" and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "train.generate is vllm, which is not installed",
            hint="pip install vllm, or --set train.generate=transformers",
        )
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(settings.device, True):
        raise ConfigError(
            f"train.device is {settings.device}, but torch finds no such device",
            hint="--set train.device=auto",
        )
    gpus = torch.cuda.device_count() if settings.device in ("auto", "cuda") else 0
    # With several visible GPUs, transformers would split each batch with DataParallel.
    if gpus > 1 and ranks == 1:
        raise ConfigError(
            f"there are {gpus} GPUs, but one process can train on only one",
            hint=f"torchrun --nproc-per-node {gpus} -m grpo_practice train …, or"
            " CUDA_VISIBLE_DEVICES=0",
        )


def check_training(config: PracticeConfig, base_dir: Path, questions: Sequence[str]) -> Path:
    """Check the agent, the model and the questions; return the folder of the base model.

    Raises:
        ConfigError: This agent cannot be trained, or the model is unusable.
        DataError: A question does not fit into the model's context window.
    """
    _check_agent(config)
    keep_quiet()
    settings = settings_of(config)
    # May download the model, so the agent is checked first.
    folder = model_folder(settings.model, settings.revision, base_dir)
    check_no_code(folder)
    check_weights(folder)
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(
            f"train.model {folder} is an adapter, not a full model",
            hint="export it with --merge, or name its base model",
        )
    _check_prompts(config, folder, questions)
    return folder


def _check_agent(config: PracticeConfig) -> None:
    agent = config.evaluation.agent
    if agent.type != "simple" or agent.toolkits:
        what = f"of type {agent.type}" if agent.type != "simple" else "with tools"
        raise ConfigError(
            f"an agent {what} cannot be trained, because a rollout is one question and one reply",
            hint="use practice instead: grpo-practice practice",
        )


def steps_planned(config: PracticeConfig, sample_ids: Sequence[int]) -> list[PlannedStep]:
    """Return the steps of the run: `steps` of them if set, or else as many as `epochs` require.

    Raises:
        DataError: There are too few questions for one step.
    """
    settings = settings_of(config)
    per_epoch = len(sample_ids) // settings.prompts_per_step
    if per_epoch == 0:
        raise DataError(
            f"{len(sample_ids)} questions do not fill a step of {settings.prompts_per_step}",
            hint=f"--set train.prompts_per_step={max(len(sample_ids), 1)}",
        )
    # `steps` overrides `epochs`; plan whole epochs and cut the plan below.
    epochs = -(-settings.steps // per_epoch) if settings.steps else settings.epochs
    plan = plan_practice(
        sample_ids,
        epochs=epochs,
        batch_size=settings.prompts_per_step,
        attempts=settings.group_size,
        seed=settings.seed,
        drop_last=True,
    )
    return plan[: settings.steps]


def prompts_of(config: PracticeConfig, questions: Sequence[str]) -> list[list[Message]]:
    """Return the messages for each question, exactly as `practice` and `eval` send them."""
    instructions = config.evaluation.agent.agent.instructions
    system: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
    return [[*system, {"role": "user", "content": question}] for question in questions]


def _check_prompts(config: PracticeConfig, folder: Path, questions: Sequence[str]) -> None:
    """Raise unless the model has a chat template and each question leaves room for an answer."""
    from jinja2 import TemplateError
    from transformers import AutoConfig

    try:
        tokenizer = load_tokenizer(folder)
        known = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as e:
        raise ConfigError(f"the model in {folder} cannot be read: {brief(str(e), 300)}") from e
    if getattr(known, "quantization_config", None) is not None:
        raise ConfigError(
            f"the model in {folder} is quantised, and quantised weights cannot be trained here",
            hint="name the model that it was quantised from",
        )
    if not tokenizer.chat_template:
        raise ConfigError(
            f"the tokenizer in {folder} has no chat template, which prompts are formatted with",
            hint="choose a chat model (its name often ends in -Instruct), or put"
            " chat_template.jinja next to it",
        )
    settings = settings_of(config)
    window = getattr(known.get_text_config(), "max_position_embeddings", None)
    for question, messages in zip(questions, prompts_of(config, questions), strict=True):
        try:
            asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        except TemplateError as e:
            raise ConfigError(
                f"the chat template of {folder} rejects the messages: {brief(str(e), 200)}",
                hint="leave evaluation.agent.agent.instructions empty, and put their text into the"
                " questions"
                if messages[0]["role"] == "system"
                else "choose another model",
            ) from e
        length = len(asked["input_ids"])
        if window is not None and length + settings.max_output_tokens > window:
            raise DataError(
                f"a question of {length} tokens and an answer of {settings.max_output_tokens} do"
                f" not fit into the model's window of {window}: {brief(question, 80)}",
                hint=f"--set train.max_output_tokens={max(window - length, 1)}, or leave the"
                " question out",
            )


def check_disk(
    config: PracticeConfig, folder: Path, left: range, room: Path, *, every: int
) -> None:
    """Raise ConfigError if the checkpoints of the remaining steps do not fit on the disk.

    Args:
        config: The run's configuration.
        folder: Folder of the base model.
        left: Steps still to be trained.
        room: Folder on the disk that receives the checkpoints.
        every: Steps between evaluations, each of which needs a checkpoint; 0 disables them.
    """
    settings = settings_of(config)
    saves = sum(
        (step + 1) % settings.save_every == 0
        or step == left[-1]
        or evaluates(every, step, last=step == left[-1])
        for step in left
    )
    each = checkpoint_bytes(trained_parameters(folder, settings)) if saves else 0
    free = shutil.disk_usage(room).free
    if each * saves > free:
        raise ConfigError(
            f"{count(saves, 'checkpoint')} of {_size(each)} do not fit on the disk of {room}, which"
            f" has {_size(free)} free",
            hint="free some space, save less often (train.save_every, train.eval_every), or name"
            " another --db",
        )


def _size(n: int) -> str:
    return f"{n / 1e9:,.1f} GB" if n >= 1e9 else f"{n / 1e6:,.1f} MB"


def checkpoint_bytes(trained: int) -> int:
    """Return the size of a checkpoint: the weights and the optimiser's first and second moments."""
    return 3 * _FLOAT * trained


def trained_parameters(folder: Path, settings: TrainSettings) -> int:
    """Return the number of trainable parameters, without loading the weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    known = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    # The meta device allocates no memory for the weights.
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(known)
        if settings.lora is not None:
            model = _with_adapter(model, settings.lora)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _with_adapter(model: Any, lora: LoraSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    ends = [model.get_output_embeddings()]
    if getattr(model.config.get_text_config(), "tie_word_embeddings", False):
        ends.append(model.get_input_embeddings())  # shared weights: a merge would change both
    try:
        adapted = get_peft_model(model, LoraConfig(**lora_arguments(lora)))
        _check_targets(adapted, ends)
        return adapted
    except ValueError as e:
        raise ConfigError(
            f"train.lora.targets {', '.join(lora.targets)}: {brief(str(e), 200)}",
            hint="--set train.lora.targets=all-linear",
        ) from e


def _check_targets(adapted: Any, ends: Sequence[Any]) -> None:
    """Raise ValueError if an embedding or output layer has an adapter, which TRL cannot train."""
    for name, module in adapted.named_modules():
        if hasattr(module, "lora_A") and any(
            end is not None and module.get_base_layer() is end for end in ends
        ):
            raise ValueError(f"{name} is the vocabulary layer, which cannot have an adapter here")


def lora_arguments(lora: LoraSettings) -> dict[str, Any]:
    """Return the arguments of PEFT's `LoraConfig`."""
    names = list(lora.targets)
    return {
        "r": lora.r,
        "lora_alpha": lora.alpha,
        "target_modules": names[0] if names == ["all-linear"] else names,
        "task_type": "CAUSAL_LM",
    }


def diagnose_training(config: PracticeConfig, folder: Path) -> list[Finding]:
    """Check the extra and the base model, if the configuration trains one."""
    if config.train is None:
        return []
    try:
        check_installed()
        model = local_folder(config.train.model, folder)
        if model is None:
            return [ok("train", f"the extra is installed; {config.train.model} comes from the hub")]
        check_no_code(model)
        check_weights(model)
    except ConfigError as e:
        return [problem("train", e)]
    return [ok("train", f"the extra is installed, and {model} can be trained")]
