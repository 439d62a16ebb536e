"""Whole weights of a base model and an adapter."""

from pathlib import Path

from grpo_practice.train.loading import keep_quiet, load_tokenizer


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write the base model with the adapter in its weights, in the base's own precision."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    keep_quiet()
    model = AutoModelForCausalLM.from_pretrained(
        base, dtype="auto", trust_remote_code=False, local_files_only=True, use_safetensors=True
    )
    merged = PeftModel.from_pretrained(model, adapter, is_trainable=False).merge_and_unload()
    merged.save_pretrained(target)
    load_tokenizer(base).save_pretrained(target)
