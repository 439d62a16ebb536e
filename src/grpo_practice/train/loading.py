"""Models and tokenizers from a folder: nothing is fetched, and no code of theirs is run."""

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


def keep_generation_settings(base: Path, saved: Path) -> None:
    """Give weights that are saved the base model's settings of generation, for who serves them."""
    own = base / GENERATION
    if own.is_file() and (saved / GENERATION).is_file():
        shutil.copyfile(own, saved / GENERATION)


def keep_quiet() -> None:
    """Keep the libraries from writing between the lines of the display."""
    import warnings

    import datasets
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", module=r"(torch|transformers|trl|peft|accelerate)\b")
