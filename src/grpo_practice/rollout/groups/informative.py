"""Decides which groups teach: groups with a better and a worse attempt to compare."""

from collections.abc import Sequence
from typing import Literal

from grpo_practice.core.stats import advantages
from grpo_practice.core.types import Group, Rollout
from grpo_practice.verify.answers import last_box, last_line

Status = Literal["scored", "uniform", "too_few"]


def status_of(group: Group, *, truth: bool) -> Status:
    """Return `scored` if the group is informative, otherwise why it is not.

    With `truth`, the advantages must not all be zero (the paper's groups with clear winners and
    losers); without `truth`, the answers must differ. An attempt that was cut off before it
    answered has reward 0, and its answer counts as different from all others.
    """
    teachable = group.teachable
    if len(teachable) < 2:
        return "too_few"
    if truth:
        differ = any(group_advantages(teachable))
    else:
        differ = len({answer_given(r) for r in teachable}) > 1
    return "scored" if differ else "uniform"


def group_advantages(rollouts: Sequence[Rollout]) -> list[float]:
    """Return each rollout's advantage within its group; attempts are ranked by advantage."""
    return advantages([rollout.reward or 0.0 for rollout in rollouts])


def answer_given(rollout: Rollout) -> str:
    """Return a rollout's answer as the verify function extracted it, else its last box or line."""
    text = rollout.verdict.extracted if rollout.verdict else None
    if text is None:
        response = rollout.played.response
        text = last_box(response) or last_line(response) or ""
    return " ".join(text.split()).casefold()
