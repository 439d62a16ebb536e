"""A language model small enough for tests: two layers, a token for each character, no download."""

import string
from pathlib import Path
from typing import Any

SPECIAL = ("<pad>", "<eos>", "<user>", "<assistant>", "<system>", "<unk>")
ALPHABET = string.printable
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "<{{ message.role }}>{{ message.content }}"
    "{%- if message.role == 'assistant' -%}<eos>{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<assistant>{%- endif -%}"
)
WINDOW = 512


def tiny_tokenizer() -> Any:
    """Return a tokenizer with a token for each character of ASCII, and a chat template."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *ALPHABET))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<assistant>", "<system>"],
        model_max_length=WINDOW,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def tiny_model(*, seed: int = 0, spread: float = 0.02) -> Any:
    """Return a Llama of two layers; `spread` is the deviation of its weights when it is made."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(SPECIAL) + len(ALPHABET),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=WINDOW,
        initializer_range=spread,
        bos_token_id=None,
        eos_token_id=SPECIAL.index("<eos>"),
        pad_token_id=SPECIAL.index("<pad>"),
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):  # what the caller draws next is as without the model
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def tiny_model_folder(path: Path, *, seed: int = 0, spread: float = 0.02) -> Path:
    """Write weights, config, tokenizer and chat template to `path`, as `train.model` takes them."""
    tiny_model(seed=seed, spread=spread).save_pretrained(path, safe_serialization=True)
    tiny_tokenizer().save_pretrained(path)
    return path
