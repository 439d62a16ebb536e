"""Models and tokenizers from a folder: nothing is fetched, and no code of theirs is run."""

import gc
import json
import shutil
from pathlib import Path
from typing import Any

GENERATION = "generation_config.json"


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a model's folder, with padding on the left."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        folder, padding_side="left", trust_remote_code=False, local_files_only=True
    )


def load_model(folder: Path, *, trains_all: bool, cpu: bool) -> Any:
    """Return the model of a folder; in single precision where its own weights are trained."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32 if trains_all or cpu else "auto",
        trust_remote_code=False,
        local_files_only=True,
        use_safetensors=True,
    )
    # Its own settings of sampling (min_p, repetition_penalty, ...) would count wherever we say
    # nothing, and answers would not be those of the probabilities that the loss compares.
    own = model.generation_config
    model.generation_config = GenerationConfig(
        bos_token_id=own.bos_token_id,
        eos_token_id=own.eos_token_id,
        pad_token_id=own.pad_token_id,
    )
    return model


def keep_settings(base: Path, saved: Path) -> None:
    """Give whole weights that are saved the base model's settings, for who serves them.

    These are its settings of generation, and its precision: what is trained is in single precision.
    """
    file = saved / "config.json"
    if not file.is_file():  # an adapter
        return
    if (base / GENERATION).is_file():
        shutil.copyfile(base / GENERATION, saved / GENERATION)
    own, made = (json.loads((f / file.name).read_text("utf-8")) for f in (base, saved))
    dtype = own.get("dtype") or own.get("torch_dtype")
    if dtype is not None:
        file.write_text(json.dumps(made | {"dtype": dtype}, indent=2), "utf-8")


def computes_in_bf16(*, cpu: bool) -> bool:
    """Return whether the device computes in bf16 by itself, and not slowly by something else."""
    import torch

    if cpu or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def free_memory() -> None:
    """Give back what a model took that nobody has any more: a cycle keeps it until it is found."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def keep_quiet() -> None:
    """Keep the libraries from writing between the lines of the display."""
    import warnings

    import datasets
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", module=r"(torch|transformers|trl|peft|accelerate)\b")
