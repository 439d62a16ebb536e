"""Convert weights for serving: merge an adapter into its base model, or restore the precision."""

import json
from pathlib import Path

from grpo_practice.train.loading import keep_quiet, load_tokenizer


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write the base model with the adapter merged in, in the base model's precision."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    keep_quiet()
    model = AutoModelForCausalLM.from_pretrained(
        base, dtype="auto", trust_remote_code=False, local_files_only=True, use_safetensors=True
    )
    merged = PeftModel.from_pretrained(model, adapter, is_trainable=False).merge_and_unload()
    merged.save_pretrained(target)
    load_tokenizer(base).save_pretrained(target)


HALF = ("bfloat16", "float16")
"""Half-precision formats of base models whose weights are trained in single precision."""


def to_own_precision(folder: Path) -> None:
    """Convert weights to the precision specified in their `config.json`, if it is a half precision.

    Training leaves weights in single precision, at twice the size of the base model.
    """
    wanted = json.loads((folder / "config.json").read_text("utf-8")).get("dtype")
    if wanted not in HALF:
        return
    import torch
    from safetensors.torch import load_file, save_file

    size = 0
    for path in folder.glob("*.safetensors"):
        tensors = {
            name: tensor.to(getattr(torch, wanted)) if tensor.is_floating_point() else tensor
            for name, tensor in load_file(path).items()
        }
        save_file(tensors, path, metadata={"format": "pt"})
        size += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    for path in folder.glob("*.safetensors.index.json"):
        index = json.loads(path.read_text("utf-8"))
        index["metadata"] = {**index.get("metadata", {}), "total_size": size}
        path.write_text(json.dumps(index, indent=2), "utf-8")
