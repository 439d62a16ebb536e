"""Models and tokenizers from a folder: nothing is fetched, and no code of theirs is run."""

from pathlib import Path
from typing import Any


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a model's folder, with padding on the left."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        folder, padding_side="left", trust_remote_code=False, local_files_only=True
    )


def load_model(folder: Path, *, trains_all: bool, cpu: bool) -> Any:
    """Return the model of a folder; in single precision where its own weights are trained."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32 if trains_all or cpu else "auto",
        trust_remote_code=False,
        local_files_only=True,
        use_safetensors=True,
    )


def keep_quiet() -> None:
    """Keep the libraries from writing between the lines of the display."""
    import warnings

    import datasets
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", module=r"(torch|transformers|trl|peft|accelerate)\b")
