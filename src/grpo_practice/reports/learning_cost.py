"""Cost of learning, by practice or by training: the data for a table of both."""

from dataclasses import dataclass

from grpo_practice.core.prompts.system import render_library
from grpo_practice.store import Store, branches, libraries, steps, trained_steps
from grpo_practice.store.queries import arms, scores
from grpo_practice.store.records import Branch, RunRow


@dataclass(frozen=True, slots=True)
class LearningCost:
    """Money, tokens and time spent to produce an arm, and the size of the result."""

    rollouts: int = 0
    tokens: int = 0
    cost_micro: int | None = 0
    """Micro-dollars; None if any part is unknown, 0 if nothing was paid."""
    device_s: float = 0.0
    """Training time in seconds, multiplied by the number of processes."""
    wall_s: float = 0.0
    shipped_bytes: int = 0
    """Size of the shipped result: the library in the prompt, the adapter or the weights."""

    def plus(self, other: "LearningCost") -> "LearningCost":
        """Return the sum of both costs; its dollars are None if those of either cost are."""
        known = self.cost_micro is not None and other.cost_micro is not None
        return LearningCost(
            self.rollouts + other.rollouts,
            self.tokens + other.tokens,
            (self.cost_micro or 0) + (other.cost_micro or 0) if known else None,
            self.device_s + other.device_s,
            self.wall_s + other.wall_s,
            self.shipped_bytes + other.shipped_bytes,
        )


def cost_of_practice(store: Store, run: RunRow, library_id: int | None) -> LearningCost:
    """Return the cost of a practice run over all its branches."""
    # Evaluations that the run started show what it has learnt, and do not make it learn more.
    usage = store.read(scores.usage, run.name, children=False)
    unpriced = store.read(scores.unpriced, run.name, children=False)
    branch = store.read(branches.load, run.head_branch or 0)
    rows = store.read(steps.on_line, branch)
    text = render_library(store.read(libraries.load, library_id)) if library_id else ""
    return LearningCost(
        rollouts=sum(row.rollouts for row in rows if row.closed),
        tokens=(usage.tokens_in or 0) + (usage.tokens_out or 0),
        cost_micro=None if unpriced else usage.cost_micro or 0,
        wall_s=store.read(arms.seconds_worked, run.name),
        shipped_bytes=len(text.encode()),
    )


def cost_of_training(store: Store, branch: Branch, sha: bytes) -> LearningCost:
    """Return the cost of a training run on this branch up to the weights with this hash.

    Wall time and judge cost are the totals for the whole run.
    """
    saved = store.read(trained_steps.checkpoints, branch)
    last = max((row.step for row in saved if row.sha256 == sha), default=-1)
    rows = [row for row in store.read(steps.on_line, branch) if row.plan.step <= last]
    stats = [row.stats or {} for row in rows]
    usage = store.read(scores.usage, branch.run, children=False)  # of a judge, if any
    unpriced = store.read(scores.unpriced, branch.run, children=False)
    size = next((row.bytes for row in saved if row.sha256 == sha), 0)
    return LearningCost(
        rollouts=sum(row.rollouts for row in rows),
        tokens=sum(s.get("tokens_in", 0) + s.get("tokens_out", 0) for s in stats),
        cost_micro=None if unpriced else usage.cost_micro or 0,
        device_s=sum(s.get("seconds", 0.0) * s.get("ranks", 1) for s in stats),
        wall_s=store.read(arms.seconds_worked, branch.run),
        shipped_bytes=size,
    )
