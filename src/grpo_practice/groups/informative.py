"""Which groups teach: those with something better and something worse to compare."""

from collections.abc import Sequence
from typing import Literal

from grpo_practice.stats import advantages
from grpo_practice.types import Group, Rollout
from grpo_practice.verify.answers import last_box, last_line

Status = Literal["scored", "uniform", "too_few"]


def status_of(group: Group, *, truth: bool) -> Status:
    """Return `scored` when the group is informative, else why it is not.

    With `truth` the advantages must not all be zero (the paper's groups with clear winners and
    losers); without, the answers must differ. An attempt that was cut off before it answered has
    reward 0, and an answer like no other.
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
    """Return the advantage of each rollout over its group: what teaches, and how it is ranked."""
    return advantages([rollout.reward or 0.0 for rollout in rollouts])


def answer_given(rollout: Rollout) -> str:
    """Return the answer a rollout gave: as verify read it, else its last box or line."""
    text = rollout.verdict.extracted if rollout.verdict else None
    if text is None:
        response = rollout.played.response
        text = last_box(response) or last_line(response) or ""
    return " ".join(text.split()).casefold()
