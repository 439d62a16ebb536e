"""TRL's trainer with our plan, rewards and checkpoints; runs on its own thread."""

import os
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.train.gather import Ranks
from grpo_practice.train.generate import Sampler, as_answer
from grpo_practice.train.loading import (
    computes_in_bf16,
    free_memory,
    keep_quiet,
    keep_settings,
    load_model,
    load_tokenizer,
)
from grpo_practice.train.rewards import given_rewards
from grpo_practice.train.work import MAKING, Answer, Observer, TrainingPlan, checkpoint_name

if TYPE_CHECKING:
    from trl import GRPOTrainer


class OtherRankFailedError(Exception):
    """The first rank failed and has reported the reason."""


def train(plan: TrainingPlan, ranks: Ranks, observer: Observer | None) -> None:
    """Train until all steps are done or the observer, which only the first rank has, stops the run.

    Raises:
        OtherRankFailedError: The first rank failed; raised only on the others.
    """
    keep_quiet()
    ranks.join()
    # The other ranks wait for the plan in `help_train`.
    if ranks.first:
        ranks.broadcast(plan)
    trainer = _trainer(plan, ranks, observer)
    try:
        trainer.train(resume_from_checkpoint=str(plan.resume) if plan.resume else None)
        # Other ranks read the checkpoint folder at the end; wait before removing it below.
        trainer.accelerator.wait_for_everyone()
    finally:
        # Drop the last reference first; otherwise no memory can be freed.
        del trainer
        free_memory()
    if ranks.first:
        shutil.rmtree(plan.checkpoints / MAKING, ignore_errors=True)


def help_train(ranks: Ranks) -> None:
    """Take part in the training that the first rank starts, until it ends."""
    ranks.join()
    plan: TrainingPlan | str = ranks.broadcast(None)
    if isinstance(plan, TrainingPlan):
        train(plan, ranks, None)


def dismiss(ranks: Ranks) -> None:
    """Tell the other ranks that no work is left."""
    if ranks.count > 1:
        ranks.join()
        ranks.broadcast("nothing is left to do")


def _trainer(plan: TrainingPlan, ranks: Ranks, observer: Observer | None) -> "GRPOTrainer":
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import PrinterCallback
    from trl import GRPOConfig

    from grpo_practice.train.grpo import trainer_class

    # Create the arguments first: they initialise the process group for everything below.
    made = GRPOConfig(**plan.arguments, **_device_arguments(plan.device, ranks))
    if made.use_cpu:
        _leave_a_core()
    tokenizer = load_tokenizer(plan.model)
    model = load_model(plan.model, trains_all=plan.lora is None, cpu=made.use_cpu)
    rows = Dataset.from_dict(
        {
            "prompt": [list(map(dict, messages)) for messages in plan.prompts],
            "place": list(range(len(plan.prompts))),
        }
    )
    rewards = RewardFunction(plan, ranks, observer)
    saving = Saving(plan, ranks, observer)
    callbacks = [_make_callback(plan, ranks, observer)]
    trainer = trainer_class()(
        model=model,
        reward_funcs=rewards,
        args=made,
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks,
        peft_config=LoraConfig(**plan.lora) if plan.lora else None,
        skip_uniform=plan.skip_uniform,
        on_saved=saving,
    )
    # Set these now: only the finished trainer knows the end tokens and the model as it is trained.
    eos = frozenset(trainer.eos_token_ids)
    most = plan.arguments["max_completion_length"]
    rewards.read = partial(as_answer, tokenizer=tokenizer, eos=eos, most=most)
    own = trainer.accelerator.unwrap_model(trainer.model)
    saving.sampler = Sampler(own, tokenizer, eos, ranks)
    rewards.length_of = lambda messages: len(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    )
    # Remove this callback, which would print log entries into the progress display.
    trainer.remove_callback(PrinterCallback)
    return trainer


def _device_arguments(device: str, ranks: Ranks) -> dict[str, Any]:
    """Return the arguments of `GRPOConfig` that depend on the machine."""
    import torch

    found = torch.cuda.is_available() or torch.backends.mps.is_available()
    cpu = device == "cpu" or (device == "auto" and not found)
    several: dict[str, Any] = {}
    if ranks.count > 1:
        several["ddp_find_unused_parameters"] = False
        if cpu:
            several["ddp_backend"] = "gloo"
    return {
        "use_cpu": cpu,
        "bf16": computes_in_bf16(cpu=cpu),
        "dataloader_pin_memory": not cpu,
        **several,
    }


def _leave_a_core() -> None:
    """Use all cores but one, unless the user has set the number of threads.

    Torch's threads wait for each other in busy loops. If anything else needs a core, such as the
    scoring workers, a step takes up to 30 times as long.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max((os.cpu_count() or 2) - 1, 1))


@dataclass(slots=True)
class RewardFunction:
    """TRL's reward function: the first rank scores the answers of all ranks and returns rewards."""

    plan: TrainingPlan
    ranks: Ranks
    observer: Observer | None
    read: Any = None
    """Function that converts tokens to an answer, such as `generate.as_answer`."""
    length_of: Any = None
    # TRL names its metrics after the function.
    __name__ = "reward"

    def __call__(
        self,
        prompts: Sequence[Sequence[Mapping[str, str]]],
        completions: object,
        completion_ids: Sequence[Sequence[int]],
        place: Sequence[int],
        **more: Any,
    ) -> list[float | None]:
        """Return the rewards of this rank's answers in the form that TRL expects.

        Raises:
            OtherRankFailedError: The first rank failed.
        """
        seen = dict[int, int]()
        own = list[Answer]()
        for at, messages, ids in zip(place, prompts, completion_ids, strict=True):
            # TRL repeats each prompt once per attempt, always on one rank.
            attempt = seen[at] = seen.get(at, -1) + 1
            own.append(self.read((at, attempt), ids, self.length_of(messages)))
        gathered = self.ranks.gather(own)
        scored: list[float | None] | None = None
        if gathered is not None:
            assert self.observer is not None, "the first rank scores"
            answers = [answer for part in gathered for answer in part]
            step, _ = self.plan.step_of(more["trainer_state"].global_step)
            try:
                scored = self.observer.score(step, answers)
            except BaseException as e:
                # Otherwise the other ranks would wait until the process group times out.
                self.ranks.broadcast(type(e).__name__)
                raise
        shared: list[float | None] | str = self.ranks.broadcast(scored)
        if isinstance(shared, str):
            raise OtherRankFailedError(shared)
        # `gather` keeps the order of the ranks, and all ranks have the same number of answers.
        start = self.ranks.rank * len(own)
        return self._given(shared[start : start + len(own)])

    def _given(self, rewards: Sequence[float | None]) -> list[float | None]:
        size = self.plan.arguments["num_generations"]
        groups = [rewards[i : i + size] for i in range(0, len(rewards), size)]
        return [r for group in groups for r in given_rewards(group, self.plan.scale_rewards)]


def _make_callback(plan: TrainingPlan, ranks: Ranks, observer: Observer | None) -> Any:
    """Return the callback that seeds and reports updates and decides when to save and stop."""
    from transformers import TrainerCallback, set_seed

    class Steps(TrainerCallback):  # type: ignore[misc]  # of a library without types
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Seed the update by its number, so that repeating it gives the same result."""
            set_seed(update_seed(plan.seed, state.global_step, ranks.rank))
            step, inner = plan.step_of(state.global_step)
            if observer is not None and inner == 0:
                observer.began(step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            step, inner = plan.step_of(state.global_step - 1)
            if inner + 1 < args.num_iterations:
                return
            # All ranks must stop after the same step; otherwise some would wait forever.
            stop = ranks.broadcast(observer.stopping() if observer else None)
            last = state.global_step >= state.max_steps
            if plan.save_every is not None:
                due = (step + 1) % plan.save_every == 0 or plan.evaluates(step, last=last)
                control.should_save = stop or last or due
            control.should_training_stop = control.should_training_stop or stop

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any
        ) -> None:
            if observer is not None and "loss" in logs:  # the final summary has no loss
                step, inner = plan.step_of(state.global_step - 1)
                observer.updated(step, inner, logs)

    return Steps()


def update_seed(seed: int, update: int, rank: int) -> int:
    """Return the 32-bit seed of an update, which differs between ranks."""
    return int.from_bytes(sha256(f"{seed}|{update}|{rank}".encode()).digest()[:4], "big")


@dataclass(slots=True)
class Saving:
    """Saves checkpoints, and evaluates some of them; runs on all ranks."""

    plan: TrainingPlan
    ranks: Ranks
    observer: Observer | None
    sampler: Sampler | None = None

    def __call__(self, updates: int) -> None:
        """Rename a written checkpoint atomically, then evaluate it if due."""
        step, _ = self.plan.step_of(updates - 1)
        if self.ranks.first:
            made = self.plan.checkpoints / MAKING / f"checkpoint-{updates}"
            final = self.plan.checkpoints / checkpoint_name(step)
            keep_settings(self.plan.model, made)
            _to_disk(made)
            # Remove a checkpoint that an interrupted run renamed but never recorded.
            shutil.rmtree(final, ignore_errors=True)
            made.replace(final)
            _sync(self.plan.checkpoints)
            if self.observer is not None:
                self.observer.saved(step, final)
        selection, last = self.plan.selection, updates >= self.plan.arguments["max_steps"]
        if selection is None or not self.plan.evaluates(step, last=last):
            return
        assert self.sampler is not None, "set before the first step"
        # Numbers below 0, because those from 0 on are the seeds of updates.
        seed = update_seed(self.plan.seed, -1 - step, self.ranks.rank)
        answers = self.sampler.answers(selection.prompts, selection.sampling, seed)
        if answers is not None and self.observer is not None:
            self.observer.evaluated(step, answers)


def _to_disk(folder: Path) -> None:
    """Flush every file of a folder to disk; call this before renaming the folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    # Read-only suffices for fsync, and a folder cannot be opened in any other way.
    at = os.open(path, os.O_RDONLY)
    with suppress(OSError):  # some file systems, such as those of containers, lack fsync
        os.fsync(at)
    os.close(at)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error means that the device ran out of memory."""
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error).lower()


def memory_used() -> tuple[str, int]:
    """Return the device and its peak memory use in bytes; without a GPU, that of this process."""
    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.get_device_name(), torch.cuda.max_memory_allocated()
    # macOS reports bytes, Linux KiB.
    scale = 1 if sys.platform == "darwin" else 1024
    return "the CPU", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
