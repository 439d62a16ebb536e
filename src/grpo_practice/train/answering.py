"""Sample answers from saved weights: the base model with a checkpoint's adapter."""

from contextlib import nullcontext
from pathlib import Path

from grpo_practice.train.gather import Ranks
from grpo_practice.train.generate import Sampler
from grpo_practice.train.loading import (
    computes_in_bf16,
    free_memory,
    keep_quiet,
    load_model,
    load_tokenizer,
)
from grpo_practice.train.work import Answer, Selection


def answers_of(
    base: Path, checkpoint: Path, asked: Selection, *, seed: int, device: str
) -> list[Answer]:
    """Return the answers of a checkpoint's weights to all questions, sampled in this process."""
    import torch
    from peft import PeftModel

    keep_quiet()
    adapter = (checkpoint / "adapter_config.json").is_file()
    on_gpu = device != "cpu" and torch.cuda.is_available()
    model = load_model(base if adapter else checkpoint, trains_all=not adapter, cpu=not on_gpu)
    if adapter:
        model = PeftModel.from_pretrained(model, checkpoint, is_trainable=False)
    model = model.to("cuda" if on_gpu else "cpu")
    tokenizer = load_tokenizer(base)
    # Many models define no padding token. Any token can be used, because padding is masked.
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    ends = model.generation_config.eos_token_id
    eos = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}
    sampler = Sampler(model, tokenizer, frozenset(eos), Ranks())
    # Use the precision of training, so that the same weights give the same answers.
    bf16 = computes_in_bf16(cpu=not on_gpu)
    with torch.autocast("cuda", torch.bfloat16) if bf16 else nullcontext():
        found = sampler.answers(asked.prompts, asked.sampling, seed) or []
    del model, sampler
    free_memory()
    return found
