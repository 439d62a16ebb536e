"""What a step leaves on record of its groups: rows and sums, so that no page reads rollouts."""

from collections import Counter
from collections.abc import Callable, Sequence

from grpo_practice.metrics import correct
from grpo_practice.practice.informative import Status
from grpo_practice.store.records import GroupRow
from grpo_practice.types import ALL_ROLLOUTS, Distilled, Group, Rollout


def group_row(
    group: Group, status: Status, done: Distilled | None, *, planned: int, library_id: int
) -> GroupRow:
    """Return the row of a group whose attempts have all ended."""
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
        library_id=library_id,
    )


def step_stats(groups: Sequence[Group], rows: Sequence[GroupRow]) -> dict[str, object]:
    """What lists and summaries say of all that was played in a step."""
    rollouts = [r for group in groups for r in group.rollouts]
    rewards = _rewards(rollouts)
    return {
        "planned": sum(row.planned for row in rows),
        "scored": len(rewards),
        "correct": sum(correct(r) for r in rewards),
        "outcomes": dict(sorted(Counter(_outcome(r) for r in rollouts).items())),
        "groups": dict(sorted(Counter(row.status for row in rows).items())),
        "informative": sum(row.informative for row in rows),
    }


def mean_reward(
    groups: Sequence[Group], *, weight: Callable[[int], float] = lambda slot: 1.0
) -> float | None:
    """Return the mean over all attempts that were scored; None without any.

    Where groups are left out, the `weight` of the others (1 / the chance to be played, by slot)
    keeps the mean where it would be with all of them.
    """
    scoring = [
        (weight(group.slot), rollout.reward)
        for group in groups
        for rollout in group.rollouts
        if rollout.reward is not None
    ]
    weights = sum(w for w, _ in scoring)
    return sum(w * reward for w, reward in scoring) / weights if scoring else None


def counted(*, skip_uniform: bool) -> str:
    """Return what a mean reward is the mean of."""
    if skip_uniform:
        return f"{ALL_ROLLOUTS}, twice those of groups that might have been left out"
    return ALL_ROLLOUTS


def _rewards(rollouts: Sequence[Rollout]) -> list[float]:
    return [r.reward for r in rollouts if r.reward is not None]


def _outcome(rollout: Rollout) -> str:
    """`ok`, `truncated`, …; with the reason for `limit` and `error`: `error.provider`."""
    played = rollout.played
    return f"{played.outcome}.{played.reason}" if played.reason else played.outcome
