"""A training whose answers are made up, on one rank or several.

python -m tests.train.driver FOLDER [KEY=VALUE …]

Each answer follows from its question and its number alone, and so do rewards: whatever the ranks,
the same rollouts come to the update.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_practice.config import load_practice
from grpo_practice.train.checks import lora_arguments, prompts_of
from grpo_practice.train.gather import Ranks
from grpo_practice.train.recipe import batch_shape, grpo_arguments, settings_of
from grpo_practice.train.rewards import skips_uniform
from grpo_practice.train.trainer import help_train, train
from grpo_practice.train.work import MAKING, Answer, TrainingPlan

STEPS = 3


class Teller:
    """The first rank's listener: rewards are the share of digits in an answer, in thirds.

    Every second question has equal rewards, and teaches nothing.
    """

    def __init__(self) -> None:
        self.answers = list[Answer]()

    def began(self, step: int) -> None:
        pass

    def score(self, step: int, answers: Sequence[Answer]) -> list[float | None]:
        self.answers += answers
        return [
            0.1 if a.place % 2 else round(3 * sum(map(str.isdigit, a.text)) / len(a.text)) / 3
            for a in answers
        ]

    def updated(self, step: int, inner: int, logs: Mapping[str, float]) -> None:
        pass

    def saved(self, step: int, folder: Path) -> None:
        pass

    def evaluated(self, step: int, answers: Sequence[Answer]) -> None:
        pass

    def stopping(self) -> bool:
        return False


def make_up_answers() -> None:
    """Replace sampling: the answer to a question is drawn from its tokens and its number."""
    import torch
    from transformers import LlamaForCausalLM

    def generate(self: Any, input_ids: Any = None, attention_mask: Any = None, **more: Any) -> Any:
        given = more.get("inputs", input_ids)
        seen = Counter[str]()
        rows = []
        for row in given.tolist():
            name = json.dumps([token for token in row if token])  # without padding
            draw = hashlib.sha256(f"{name}|{seen[name]}".encode()).digest()
            seen[name] += 1
            length = 3 + draw[0] % 5
            rows.append([6 + byte % 60 for byte in draw[1:length]] + [1] + [0] * (8 - length))
        return torch.cat([given, torch.tensor(rows, device=given.device)], dim=1)

    LlamaForCausalLM.generate = generate


def main(folder: Path, *sets: str) -> None:
    ranks = Ranks.of_environment()
    make_up_answers()
    if not ranks.first:
        help_train(ranks)
        return
    config = load_practice(folder / "toy.yaml", sets, {}, trains=True).config
    settings = settings_of(config)
    shape = batch_shape(settings, ranks.count)
    made = folder / f"made-{ranks.count}-{'-'.join(sets) or 'plain'}".replace("/", "_")
    questions = [f"{n}+1=" for n in range(STEPS * settings.prompts_per_step)]
    plan = TrainingPlan(
        arguments=grpo_arguments(config, shape, steps=STEPS, folder=str(made / MAKING)),
        lora=lora_arguments(settings.lora) if settings.lora else None,
        model=folder / "base",
        prompts=prompts_of(config, questions),
        prompts_per_step=settings.prompts_per_step,
        save_every=STEPS,
        checkpoints=made,
        resume=None,
        seed=0,
        scale_rewards=settings.scale_rewards,
        skip_uniform=skips_uniform(settings),
        device="cpu",
    )
    teller = Teller()
    train(plan, ranks, teller)
    places = Counter((answer.place, answer.attempt) for answer in teller.answers)
    assert set(places.values()) == {1}, "every attempt once"
    print(made / f"step-{STEPS - 1:06}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
