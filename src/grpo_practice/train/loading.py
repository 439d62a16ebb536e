"""Load models and tokenizers from a folder, without network access and without running its code."""

import gc
import json
import shutil
from pathlib import Path
from typing import Any

GENERATION = "generation_config.json"


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer from a model's folder, with left padding."""
    from transformers import AutoTokenizer

    # Padding on the left, because an answer continues its prompt at the end of the row.
    return AutoTokenizer.from_pretrained(
        folder, padding_side="left", trust_remote_code=False, local_files_only=True
    )


def load_model(folder: Path, *, trains_all: bool, cpu: bool) -> Any:
    """Load the model from a folder, in single precision if all its weights are trained."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32 if trains_all or cpu else "auto",
        trust_remote_code=False,
        local_files_only=True,
        use_safetensors=True,
    )
    # Clear the model's own sampling settings (min_p, repetition_penalty, ...). Otherwise answers
    # would not follow the probabilities that the loss compares.
    own = model.generation_config
    model.generation_config = GenerationConfig(
        bos_token_id=own.bos_token_id,
        eos_token_id=own.eos_token_id,
        pad_token_id=own.pad_token_id,
    )
    return model


def keep_settings(base: Path, saved: Path) -> None:
    """Copy the base model's generation config and precision into saved full weights, for servers.

    Training uses single precision, so `config.json` would otherwise specify single precision.
    """
    file = saved / "config.json"
    if not file.is_file():  # an adapter: the server uses the base model's settings
        return
    if (base / GENERATION).is_file():
        shutil.copyfile(base / GENERATION, saved / GENERATION)
    own, made = (json.loads((f / file.name).read_text("utf-8")) for f in (base, saved))
    dtype = own.get("dtype") or own.get("torch_dtype")
    if dtype is not None:
        file.write_text(json.dumps(made | {"dtype": dtype}, indent=2), "utf-8")


def computes_in_bf16(*, cpu: bool) -> bool:
    """Return whether the device supports bf16 natively, without slow emulation."""
    import torch

    if cpu or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def free_memory() -> None:
    """Free the memory of unreferenced models, which reference cycles would keep alive."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def keep_quiet() -> None:
    """Silence the libraries, because their output would disturb the progress display."""
    import warnings

    import datasets
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", module=r"(torch|transformers|trl|peft|accelerate)\b")
