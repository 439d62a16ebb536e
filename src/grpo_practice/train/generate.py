"""Sample answers for evaluations from weights in this process."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_practice.train.gather import Ranks
from grpo_practice.train.loading import (
    computes_in_bf16,
    free_memory,
    keep_quiet,
    load_model,
    load_tokenizer,
)
from grpo_practice.train.work import Answer, Message, Sampling, Selection

ANSWERS_PER_BATCH = 32
"""Maximum number of answers in one batch."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """A model that generates answers, during training or afterwards."""

    model: Any
    tokenizer: Any
    eos: frozenset[int]
    ranks: Ranks

    def answers(
        self, prompts: Sequence[Sequence[Message]], sampling: Sampling, seed: int
    ) -> list[Answer] | None:
        """Sample answers to all prompts, divided among the ranks.

        The first rank gets all answers, in the order of the prompts; the others get None.
        Shape: [prompts * attempts].
        """
        import torch
        from transformers import set_seed

        set_seed(seed)
        # A stride gives all ranks the same number of answers, to within one.
        wanted = [(at, n) for at in range(len(prompts)) for n in range(sampling.attempts)]
        own = wanted[self.ranks.rank :: self.ranks.count]
        trained = self.model.training
        # Sample without dropout, and restore the trainer's mode afterwards.
        self.model.train(mode=False)
        made = list[Answer]()
        with torch.no_grad():
            for i in range(0, len(own), ANSWERS_PER_BATCH):
                made += self._batch(own[i : i + ANSWERS_PER_BATCH], prompts, sampling)
        self.model.train(trained)
        gathered = self.ranks.gather(made)
        if gathered is None:
            return None
        return sorted((a for part in gathered for a in part), key=lambda a: (a.place, a.attempt))

    def _batch(
        self,
        wanted: Sequence[tuple[int, int]],
        prompts: Sequence[Sequence[Message]],
        sampling: Sampling,
    ) -> list[Answer]:
        asked = self.tokenizer.apply_chat_template(
            [list(map(dict, prompts[at])) for at, _ in wanted],
            add_generation_prompt=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        ).to(self.model.device)
        # Temperature 0 means greedy decoding; transformers rejects 0 as a temperature.
        how = (
            {"do_sample": True, "temperature": sampling.temperature, "top_k": 0, "top_p": 1.0}
            if sampling.temperature
            else {"do_sample": False}
        )
        most = sampling.max_output_tokens
        out = self.model.generate(
            **asked, **how, max_new_tokens=most, pad_token_id=self.tokenizer.pad_token_id
        )
        width = asked["input_ids"].shape[1]
        lengths = asked["attention_mask"].sum(dim=1).tolist()
        return [
            as_answer(place, ids, length, tokenizer=self.tokenizer, eos=self.eos, most=most)
            for place, ids, length in zip(wanted, out[:, width:].tolist(), lengths, strict=True)
        ]


def as_answer(
    place: tuple[int, int],
    ids: Sequence[int],
    length: int,
    *,
    tokenizer: Any,
    eos: Collection[int],
    most: int,
) -> Answer:
    """Convert sampled tokens to an answer in the form that training and evaluation score.

    The answer is the whole decoded text: parsing with the reply template would drop the reasoning
    of some models.

    Args:
        place: Index of the question, and number of the attempt.
        ids: Tokens of the answer; tokens after an end token are padding.
        length: Number of tokens in the question.
        tokenizer: Tokenizer of the model.
        eos: Tokens that end an answer.
        most: Maximum number of tokens in an answer.
    """
    end = next((i for i, token in enumerate(ids) if token in eos), len(ids))
    text = tokenizer.decode(ids[:end], skip_special_tokens=True)
    used = min(end + 1, len(ids))
    return Answer(*place, text, length, used, truncated=end == len(ids) >= most)


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
