"""Wording shared by several reports."""

from collections.abc import Mapping

from grpo_practice.core.calls import Usage
from grpo_practice.core.stats import Score
from grpo_practice.core.text import count
from grpo_practice.core.types import MeanOver

MEAN_OVER: Mapping[MeanOver, str] = {
    "all": "all rollouts",
    "weighted": "all rollouts, twice those of groups that might have been left out",
}
"""Description of the rollouts that a mean reward covers."""


def unscorable_count(score: Score) -> str:
    """Describe the number of questions that cannot be scored; empty if all can be scored."""
    if not score.questions_unscorable:
        return ""
    total = count(score.questions + score.questions_unscorable, "question")
    return f"{score.questions_unscorable} of {total} cannot be scored"


def cost_text(usage: Usage) -> str:
    """Format the cost of calls in dollars; `unknown` if a call has no price."""
    return "unknown" if usage.cost_micro is None else f"${usage.cost_micro / 1e6:.6f}"
