"""Subclass of TRL's trainer that renames checkpoints and skips groups that teach nothing."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any


@cache
def trainer_class() -> Any:
    """Return the class, which is defined in this function because importing TRL takes seconds."""
    import torch
    from trl import GRPOTrainer

    class StepTrainer(GRPOTrainer):  # type: ignore[misc]  # of a library without types
        """TRL's trainer with two more arguments: `skip_uniform`, and `on_saved` for checkpoints."""

        def __init__(
            self, *args: Any, skip_uniform: bool, on_saved: Callable[[int], None], **more: Any
        ) -> None:
            super().__init__(*args, **more)
            self._skip_uniform, self._on_saved = skip_uniform, on_saved
            self._buffered_inputs: Any
            self._idle = 0
            """Number of batches at the start of a step in which no answer has an advantage."""

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            # TRL samples once for several updates, and keeps the batches of these updates here.
            before: Any = self._buffered_inputs
            inputs = super()._prepare_inputs(generation_batch)
            batches: Any = self._buffered_inputs
            if not self._skip_uniform or batches is before:
                return inputs
            self._buffered_inputs = batches = self._idle_first(batches)
            return batches[self._step % len(batches)]

        def _idle_first(self, batches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
            """Sort a step's answers so that those with zero advantage come first.

            They must not come last: with several ranks, the last batch synchronises the gradients.
            """
            rows = batches[0]["advantages"].shape[0]
            advantages = torch.cat([batch["advantages"] for batch in batches])
            order = torch.argsort((advantages != 0).int(), stable=True)
            mixed = {
                key: torch.cat([batch[key] for batch in batches])[order]
                if value.dim() and value.shape[0] == rows
                else value
                for key, value in batches[0].items()
            }
            idle = torch.tensor(int((advantages == 0).sum()) // rows, device=advantages.device)
            # Use the minimum over all ranks: every rank must take part in collective operations.
            self._idle = min(int(self.accelerator.gather(idle).min()), len(batches) - 1)
            return [
                {
                    key: value[i * rows : (i + 1) * rows]
                    if value.dim() and value.shape[0] == len(order)
                    else value
                    for key, value in mixed.items()
                }
                for i in range(len(batches))
            ]

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            if self.model.training and self._step % self.args.steps_per_generation < self._idle:
                # The gradient of this batch is 0; the weights of the other batches stay the same.
                return next(p for p in model.parameters() if p.requires_grad).sum() * 0.0
            return super()._compute_loss(model, inputs)

        def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
            super()._load_optimizer_and_scheduler(checkpoint)
            _set_rate(self.optimizer, self.lr_scheduler, self.args.learning_rate)

        def create_model_card(self, *args: Any, **more: Any) -> None:
            """Create no model card, because the database records how a checkpoint was made."""

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            super()._save_checkpoint(model, trial)
            # All ranks must have written their part before the first one renames the folder.
            self.accelerator.wait_for_everyone()
            self._on_saved(self.state.global_step)
            self.accelerator.wait_for_everyone()

    return StepTrainer


def _set_rate(optimizer: Any, scheduler: Any, rate: float) -> None:
    """Set the learning rate for the next update.

    Loading a checkpoint restores the rate saved with it, even if a restart configured a different
    one.
    """
    # Unwrap both, because accelerate's wrappers do not expose the attributes set below.
    optimizer = getattr(optimizer, "optimizer", optimizer)
    scheduler = getattr(scheduler, "scheduler", scheduler)
    scheduler.base_lrs = [rate] * len(scheduler.base_lrs)
    scheduler._last_lr = [rate * course(scheduler.last_epoch) for course in scheduler.lr_lambdas]
    for group, now in zip(optimizer.param_groups, scheduler._last_lr, strict=True):
        group["initial_lr"], group["lr"] = rate, now
