"""What scoring, storing and telling add to a step of training, beside TRL alone.

python -m bench.beside_trl, where the extra [train] is installed: both in turns, some minutes.
"""

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from scipy import stats
from tests.train.tiny import tiny_tokenizer

from grpo_practice import Workspace
from grpo_practice.config import load_practice
from grpo_practice.store import Store
from grpo_practice.train.checks import prompts_of
from grpo_practice.train.loading import keep_quiet, load_model, load_tokenizer
from grpo_practice.train.recipe import batch_shape, grpo_arguments, settings_of
from grpo_practice.train.scoring import OnLoop
from grpo_practice.train.trainer import update_seed

PAIRS, STEPS = 6, 8
CONFIG = """
exp_id: toy
data: {{practice_dataset_name: q.jsonl}}
evaluation: {{verify: {verify}, agent: {{agent: {{instructions: Answer.}}}}}}
train: {{model: base, prompts_per_step: 8, group_size: 8, max_output_tokens: 96, temperature: 1.0,
  lora: null, steps: {steps}, save_every: 1000, device: cpu, skip_uniform: false}}
"""


def model(folder: Path) -> None:
    """Write a model of which a step takes about a second."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=False,
        )
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


waited = list[float]()
"""Seconds of each call in which the training thread waited for our part."""


def watch_our_part() -> None:
    """Take the time of each call that the training thread makes, and waits for."""
    wait = OnLoop._wait

    def watched(self: OnLoop, work: Coroutine[Any, Any, Any]) -> Any:
        began = time.monotonic()
        try:
            return wait(self, work)
        finally:
            waited.append(time.monotonic() - began)

    OnLoop._wait = watched  # type: ignore[method-assign]


def ours(folder: Path, n: int) -> list[float]:
    """Return the seconds of each step of a training as users have it."""
    database = folder / f"{n}.db"
    Workspace(database).train(folder / "toy.yaml", env={})
    with Store(database) as store:
        rows = store.read(lambda db: db.execute("SELECT seconds FROM updates").fetchall())
    return [seconds for (seconds,) in rows]


def bare(folder: Path, n: int) -> list[float]:
    """Return the seconds of each step of TRL alone, with the same arguments and rewards inline."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback, set_seed
    from trl import GRPOConfig, GRPOTrainer

    keep_quiet()
    config = load_practice(folder / "toy.yaml", [], {}, trains=True).config
    shape = batch_shape(settings_of(config), 1)
    arguments = grpo_arguments(config, shape, steps=STEPS, folder=str(folder / f"bare-{n}"))
    rows = [json.loads(line) for line in (folder / "q.jsonl").read_text().splitlines()]
    questions = [row["question"] for row in rows] * STEPS
    times = list[float]()

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            set_seed(update_seed(0, state.global_step, 0))  # so that both sample the same
            times.append(-time.monotonic())

        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
            if "loss" in logs:
                times[-1] += time.monotonic()

    def reward(completions: Sequence[Any], **_: Any) -> list[float]:
        said = [completion[-1]["content"] for completion in completions]
        return [sum(map(str.isdigit, text)) / max(len(text), 1) for text in said]

    trainer = GRPOTrainer(
        model=load_model(folder / "base", trains_all=True, cpu=True),
        reward_funcs=reward,
        args=GRPOConfig(**arguments, use_cpu=True, bf16=False, dataloader_pin_memory=False),
        train_dataset=Dataset.from_dict(
            {"prompt": [list(map(dict, m)) for m in prompts_of(config, questions)]}
        ),
        processing_class=load_tokenizer(folder / "base"),
        callbacks=[Watch()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return times


def main() -> int:
    """Train in turns, and print the ratio of the two with its interval, and our share of a step."""
    watch_our_part()
    for verify in ("contains", "math"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "toy.yaml").write_text(CONFIG.format(verify=verify, steps=STEPS))
            rows = [{"question": f"{i}+1=", "answer": str(i + 1)} for i in range(8)]
            (folder / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
            model(folder / "base")
            ratios, parts = [], []
            for n in range(PAIRS):
                waited.clear()
                # The first step of each warms up.
                one, two = (statistics.fmean(part(folder, n)[1:]) for part in (bare, ours))
                ratios.append(two / one)
                parts.append(sum(waited) / (two * STEPS))
                print(f"{verify}: TRL {one:.3f} s a step, with ours {two:.3f} s", flush=True)
            mean = statistics.fmean(ratios)
            half = stats.t.ppf(0.975, PAIRS - 1) * statistics.stdev(ratios) / math.sqrt(PAIRS)
            print(f"{verify}: ratio {mean:.3f} ({mean - half:.3f} to {mean + half:.3f})")
            share = statistics.fmean(parts)
            print(
                f"{verify}: waited for our part {share:.1%} ({min(parts):.1%} to {max(parts):.1%})"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
