"""Rows and sums that a step stores about its groups, so that reports need not read rollouts."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Set

from grpo_practice.core.stats import correct
from grpo_practice.core.types import Distilled, Group, Rollout
from grpo_practice.rollout.groups.informative import Status
from grpo_practice.store.records import GroupRow, Part


def group_row(
    group: Group,
    status: Status,
    done: Distilled | None,
    *,
    planned: int,
    library_id: int | None,
    parts: Sequence[Part] = (),
) -> GroupRow:
    """Return the row of a group after all its attempts have ended."""
    return GroupRow(
        slot=group.slot,
        sample_id=group.sample.id,
        planned=planned,
        played=sum(r.played.outcome != "error" for r in group.rollouts),
        scored=len(_rewards(group.rollouts)),
        teachable=len(group.teachable),
        mean_reward=mean_reward([group]),
        informative=status == "scored",
        status=("failed" if done.failed else "distilled") if done else status,
        reason=done.failed if done else None,
        unanswered=bool(done and done.failed and done.unanswered),
        library_id=library_id,
        parts=json.dumps([(sorted(p.left_out), p.reward, p.scored) for p in parts])
        if any(p.left_out for p in parts)
        else None,
    )


def parts_of(group: Group, left_out: Callable[[int], Set[str]]) -> list[Part]:
    """Return the rewards of a group by the experiences that its attempts left out.

    `left_out` gives these experiences by the number of the attempt.
    """
    rewards = defaultdict[frozenset[str], list[float]](list)
    for rollout in group.rollouts:
        if rollout.reward is not None:
            rewards[frozenset(left_out(rollout.attempt))].append(rollout.reward)
    return [Part(gone, sum(of) / len(of), len(of)) for gone, of in rewards.items()]


def step_stats(groups: Sequence[Group], rows: Sequence[GroupRow]) -> dict[str, object]:
    """Return the sums over all groups played in a step, for lists and summaries."""
    rollouts = [r for group in groups for r in group.rollouts]
    rewards = _rewards(rollouts)
    ends = [(r.played.outcome, r.played.reason) for r in rollouts]
    outcomes = Counter(f"{ended}.{reason}" if reason else ended for ended, reason in ends)
    return {
        "planned": sum(row.planned for row in rows),
        "scored": len(rewards),
        "correct": sum(correct(r) for r in rewards),
        "outcomes": dict(sorted(outcomes.items())),
        "groups": dict(sorted(Counter(row.status for row in rows).items())),
        "informative": sum(row.informative for row in rows),
        "alike": sum(map(_alike, groups)),
    }


def _alike(group: Group) -> bool:
    """Return True if several attempts were answered, all with the same text."""
    answers = [r.played.response for r in group.rollouts if r.played.outcome == "ok"]
    return len(answers) > 1 and len(set(answers)) == 1


def mean_reward(groups: Sequence[Group]) -> float | None:
    """Return the mean reward of all scored attempts; None if no attempt was scored."""
    rewards = [reward for group in groups for reward in _rewards(group.rollouts)]
    return sum(rewards) / len(rewards) if rewards else None


def _rewards(rollouts: Sequence[Rollout]) -> list[float]:
    return [r.reward for r in rollouts if r.reward is not None]
