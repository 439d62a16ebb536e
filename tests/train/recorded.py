"""A real GRPOTrainer that plays nothing: rollouts are made up, and each update is kept.

Weights are float64. What an update is to be is computed apart from the trainer: plain logits and a
log-softmax in float64, advantages by `stats`, loss and derivative by the oracle; torch only takes
the derivative from log-probabilities to parameters.
"""

from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from grpo_practice.core.stats.scores import EPSILON, advantages
from grpo_practice.train.rewards import Rewards, given_rewards
from tests.train.oracle import Batch, Floats, Objective, Update, update

GROUP = 4
TEMPERATURE = 0.9
NOISE = 0.25
"""Deviation of made-up old log-probabilities, of a completion and of each of its tokens."""
TAUGHT = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")


@dataclass(frozen=True)
class Plan:
    """How a recorded run is made."""

    objective: Objective
    micro_batches: int = 1
    update_epochs: int = 1
    updates_of_a_generation: int = 1
    old_is_made_up: bool = False
    lengths: tuple[int, ...] = (3, 12, 7, 5, 9, 4, 12, 6)
    """Tokens of the completions, two groups of them."""
    truncated: int | None = None
    """Place of a completion that has no end; such are masked."""
    rewards: tuple[Rewards, ...] = ((1.0, 0.0, 0.25, 1.0), (0.1, 0.7, 0.3, 0.3))
    scale: Literal["group", "batch", "none"] = "group"
    given_for: Literal["group", "batch", "none"] | None = None
    """Scale for which rewards are given to the trainer; None: the one that it has."""


@dataclass(frozen=True)
class Step:
    """One update of the weights: what the trainer made of it, and what it is to be."""

    batch: Batch
    expected: Update
    expected_gradients: list[Any]
    """Gradient of each parameter, by the oracle's derivative."""
    losses: Floats
    """Loss of each micro-batch, as the trainer has it."""
    gradients: list[Any]
    """Gradient of each parameter, as the trainer has it before it is clipped."""
    advantages: Floats
    """Advantages, as the trainer has them."""
    groups: Floats
    """Group of each completion."""
    log_probabilities: Floats
    """Log-probability of each token, as the trainer has it."""


def exact_advantages(plan: Plan) -> list[float]:
    """Return what the advantages of the plan's rewards are to be: 0 where there is no reward."""
    known = [[reward for reward in group if reward is not None] for group in plan.rewards]
    if plan.scale == "group":
        found = [advantages(group) for group in known]
    else:
        spread = np.std([reward for group in known for reward in group], ddof=1) + EPSILON
        divisor = float(spread) if plan.scale == "batch" else 1.0
        found = [[(r - float(np.mean(group))) / divisor for r in group] for group in known]
        found = [
            values if len(set(group)) > 1 else [0.0] * len(group)
            for group, values in zip(known, found, strict=True)
        ]
    left = [iter(values) for values in found]
    pairs = zip(plan.rewards, left, strict=True)
    return [0.0 if r is None else next(values) for group, values in pairs for r in group]


def log_probabilities(model: Any, inputs: dict[str, Any]) -> Any:
    """Return the log-probability of each token of the completions, in float64; [B, T]."""
    import torch

    tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    logits = model(input_ids=tokens, attention_mask=seen).logits.double() / TEMPERATURE
    length = inputs["completion_ids"].shape[1]
    every = torch.log_softmax(logits[:, -length - 1 : -1], dim=-1)
    found = every.gather(2, inputs["completion_ids"].unsqueeze(2)).squeeze(2)
    return found * inputs["completion_mask"]


def answers(tokenizer: Any, plan: Plan) -> list[list[int]]:
    """Return completions of characters by chance, of the planned lengths, with their ends."""
    draw = np.random.default_rng(5)
    end = tokenizer.eos_token_id
    made = []
    for i, length in enumerate(plan.lengths):
        answer = [int(token) for token in draw.integers(6, 70, length)]
        made.append(answer if i == plan.truncated else [*answer[:-1], end])
    return made


def arguments(output: Path, plan: Plan) -> Any:
    """Return the plan as a GRPOConfig."""
    from trl import GRPOConfig

    goal = plan.objective
    parts = plan.micro_batches * plan.updates_of_a_generation
    return GRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=len(plan.lengths) // parts,
        gradient_accumulation_steps=plan.micro_batches,
        steps_per_generation=parts,
        num_generations=GROUP,
        num_iterations=plan.update_epochs,
        max_steps=plan.updates_of_a_generation * plan.update_epochs,
        max_completion_length=goal.max_output_tokens,
        mask_truncated_completions=plan.truncated is not None,
        loss_type=goal.loss,
        importance_sampling_level=goal.importance,
        scale_rewards=plan.scale,
        beta=goal.beta,
        use_bias_correction_kl=goal.kl_by_ratio,
        epsilon=goal.clip[0],
        epsilon_high=goal.clip[1],
        temperature=TEMPERATURE,
        learning_rate=2e-4,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        seed=11,
    )


@cache
def loaded(folder: Path) -> tuple[Any, Any]:
    """Return model and tokenizer of a folder, which each run of the tests has in common."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    return model, AutoTokenizer.from_pretrained(folder)


def recorded_steps(folder: Path, output: Path, plan: Plan) -> list[Step]:
    """Train on one generation of made-up rollouts, and return each update."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    reference, tokenizer = loaded(folder)
    model = deepcopy(reference)
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():  # the policy has left the reference
        for weight in model.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=draw, dtype=weight.dtype)
    steps: list[Step] = []

    class Trainer(GRPOTrainer):  # type: ignore[misc] # Any where trl is not installed
        seen: list[dict[str, Any]]

        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            made = cast(dict[str, Any], super()._generate_and_score_completions(inputs))
            with torch.no_grad():
                old = log_probabilities(self.model, made)
                made["exact_reference"] = log_probabilities(reference, made)
            if plan.old_is_made_up:
                count, length = old.shape
                noise = torch.randn(count, length + 1, generator=draw, dtype=old.dtype) * NOISE
                old = old + (noise[:, :1] + noise[:, 1:]) * made["completion_mask"]
                made["old_per_token_logps"] = old
            made["exact_old"] = old
            made["exact_advantages"] = torch.tensor(exact_advantages(plan), dtype=torch.float64)
            made["groups"] = torch.arange(len(plan.lengths)) // GROUP
            self.seen = []
            return made

        def _get_per_token_logps_and_entropies(self, *args: Any, **more: Any) -> Any:
            found = super()._get_per_token_logps_and_entropies(*args, **more)
            self.logps = found[0].detach()
            return found

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **more: Any) -> Any:
            loss = super().compute_loss(model, inputs, *args, **more)
            self.seen.append({**inputs, "loss": loss.detach()[None], "logps": self.logps})
            return loss

    class Keep(TrainerCallback):  # type: ignore[misc] # Any where transformers is not installed
        def on_pre_optimizer_step(self, *args: Any, **more: Any) -> None:
            steps.append(step_of(trainer.model, trainer.seen, plan))
            trainer.seen = []

    scale = plan.given_for or plan.scale
    given = [reward for group in plan.rewards for reward in given_rewards(group, scale)]
    texts = [f"{'And ' * i}{i} + 2?" for i in range(len(plan.rewards))]
    trainer = Trainer(
        model=model,
        reward_funcs=lambda **known: given,
        args=arguments(output, plan),
        train_dataset=Dataset.from_list([{"prompt": text} for text in texts]),
        processing_class=tokenizer,
        callbacks=[Keep()],
        rollout_func=lambda prompts, trainer: {
            "prompt_ids": tokenizer(prompts)["input_ids"],
            "completion_ids": answers(tokenizer, plan),
            "logprobs": None,
        },
    )
    trainer.train()
    return steps


def step_of(model: Any, seen: list[dict[str, Any]], plan: Plan) -> Step:
    """Return the update that is about to be made with these micro-batches.

    Weights change behind autograd's back in the next moment: derivatives are taken here.
    """
    import torch

    def whole(key: str) -> Floats:
        return cast(Floats, torch.cat([one[key] for one in seen]).double().numpy())

    logp = log_probabilities(model, {key: torch.cat([one[key] for one in seen]) for key in TAUGHT})
    batch = Batch(
        logp=logp.detach().numpy(),
        old=whole("exact_old"),
        reference=whole("exact_reference"),
        mask=whole("completion_mask"),
        advantages=whole("exact_advantages"),
    )
    tokens = float(seen[0]["num_items_in_batch"]) / plan.updates_of_a_generation
    expected = update(batch, plan.objective, micro_batches=plan.micro_batches, tokens=tokens)
    parameters = list(model.parameters())
    return Step(
        batch=batch,
        expected=expected,
        expected_gradients=list(
            torch.autograd.grad(logp, parameters, torch.from_numpy(expected.gradient))
        ),
        losses=whole("loss"),
        gradients=[weight.grad.clone() for weight in parameters],
        advantages=whole("advantages"),
        groups=whole("groups"),
        log_probabilities=whole("logps"),
    )
